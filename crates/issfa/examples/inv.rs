use issfa::selftest::*;
fn main(){
    let n: u64 = std::env::args().nth(1).unwrap().parse().unwrap();
    let mut subjects = Subject::shipped();
    subjects.extend([Subject::StorageOrder, Subject::PrintedRepulsion, Subject::UncorrectedLaplace]);
    let only = std::env::args().nth(2);
    for s in subjects {
        if let Some(o) = &only { if !s.name().contains(o.as_str()) { continue; } }
        let t = std::time::Instant::now();
        let r = run(&Tiny::default(), &s, std::env::args().nth(3).map_or(7, |x| x.parse().unwrap()), n);
        println!("{:50} worst {:?} {:.1}s  {:?}", r.subject, r.worst(), t.elapsed().as_secs_f64(), r.z.iter().map(|z| (z*10.0).round()/10.0).collect::<Vec<_>>());
    }
}
