"""The page in a real browser, from disk and over a fit that runs: what is drawn, and what keys and pointers do.

    cargo build --release && ISSFA_BROWSER=$(tools/browser) tools/python crates/issfa-report/tests/browser.py

Part of ./test. All data are simulated here.
"""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import nibabel
import numpy as np
from playwright.sync_api import sync_playwright

ISSFA = Path("target/release/issfa").resolve()
BROWSER = os.environ["ISSFA_BROWSER"]
# A volume whose x axis runs to the left: the page has to turn it.
AFFINE = np.array([[-3.0, 0, 0, 30], [0, 3.0, 0, -36], [0, 0, 4.0, -20], [0, 0, 0, 1.0]])
BLOB = np.array([21.0, 12.0, 4.0])
EVIL = "</script><script>window.hacked++</script>"


def issfa(folder, *words):
    done = subprocess.run([ISSFA, *map(str, words)], cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def make_volumes(folder):
    """Rows of a blob on the right, and of a weaker and wider one on the left, in noise."""
    rng = np.random.default_rng(1)
    grid = (20, 24, 12)
    places = nibabel.affines.apply_affine(AFFINE, np.stack(np.meshgrid(*map(np.arange, grid), indexing="ij"), -1))
    bump = lambda middle, width: np.exp(-((places - middle) ** 2).sum(-1) / (2 * width**2))
    features = np.stack([bump(BLOB, 5), bump([-18, -12, 0], 9)])
    # Rows use one of them or both: of features that all rows use with normal weights any mixture would do as well.
    uses = np.stack([np.arange(60) % 3 != 0, np.arange(60) % 3 != 1], 1)
    weights = rng.normal(0, [[8, 2]], (60, 2)) * uses
    values = np.tensordot(weights, features, 1) + rng.normal(0, 0.5, (60, *grid))
    image = nibabel.Nifti1Image(np.moveaxis(values, 0, -1).astype(np.float32) + 100, AFFINE)
    image.header.set_zooms((3, 3, 4, 2.0))
    nibabel.save(image, folder / "bold.nii.gz")


def make_light(folder, k=400, side=64):
    """As many features as a page is made light for: small blobs, each row of one or two of them."""
    rng = np.random.default_rng(2)
    y, x = np.mgrid[:side, :side]
    centres = rng.uniform(2, side - 2, (k, 2))
    features = np.exp(-((y - centres[:, :1, None]) ** 2 + (x - centres[:, 1:, None]) ** 2) / 6)
    rows = np.repeat(features, 5, axis=0) * rng.uniform(20, 30, (5 * k, 1, 1))
    np.save(folder / "many.npy", (rows + rng.normal(0, 0.3, rows.shape)).astype(np.float32))


class Folder:
    """What several tests look at, made once."""

    @classmethod
    def make(cls):
        cls.keep = tempfile.TemporaryDirectory()
        folder = cls.path = Path(cls.keep.name)
        issfa(folder, "simulate", "--seed", 5, "--rows", 80, "--heldout-rows", 20, "--grid", "12x10", "--features", 5, "--density", 0.3, "--theta", "1,10", "--out", "sim")
        issfa(folder, "fit", "sim/observations.npy", "--grid", "12x10", "--sweeps", 60, "--chains", 2, "--out", "flat")
        # Written by the fit itself; names of folders, axes and columns do nothing.
        evil = folder / f"evil{EVIL}"
        evil.parent.mkdir(parents=True, exist_ok=True)
        cls.evil = evil
        issfa(folder, "fit", "sim/observations.npy", "--grid", "12x10", "--sweeps", 20, "--axes", f"{EVIL}=0:1,<img src>", "--out", evil)
        make_volumes(folder)
        issfa(folder, "fit", "bold.nii.gz", "--sweeps", 40, "--out", "volumes")
        month = np.arange(12)
        rows = np.random.default_rng(3).normal(0, 1, (80, 1)) * 5 * np.cos(2 * np.pi * (month - 3) / 12)
        np.save(folder / "line.npy", rows + np.random.default_rng(4).normal(0, 0.3, rows.shape))
        issfa(folder, "fit", "line.npy", "--structure", "cycle", "--sweeps", 40, "--out", "line")
        boxes = np.random.default_rng(5).normal(0, 0.2, (60, 5, 6, 7))
        boxes[:, 3, 1:4, 2:5] += np.random.default_rng(6).normal(0, 5, (60, 1, 1))
        np.save(folder / "box.npy", boxes)
        issfa(folder, "fit", "box.npy", "--axes", "hour=0:4,latitude=10:15,longitude=0:6", "--sweeps", 40, "--out", "box")
        # A sea whose south-west is land.
        sea = np.random.default_rng(8).normal(0, 0.2, (60, 8, 9))
        sea[:, 5:7, 3:6] += np.random.default_rng(9).normal(0, 5, (60, 1, 1))
        sea[:, :3, :4] = np.nan
        np.save(folder / "sea.npy", sea)
        issfa(folder, "fit", "sea.npy", "--axes", "latitude=10:17,longitude=0:8", "--sweeps", 40, "--out", "sea")


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.play = sync_playwright().start()
        cls.browser = cls.play.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.play.stop()

    def open(self, target, offline=True, width=1180, **how):
        """A page, with what went wrong in it, and what it asked for."""
        context = self.browser.new_context(viewport={"width": width, "height": 900}, offline=offline, **how)
        self.addCleanup(context.close)
        page = context.new_page()
        self.problems, self.requests = [], []
        page.on("console", lambda message: self.problems.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(target if isinstance(target, str) else (Path(target) / "report.html").as_uri().replace("%20", " "))
        self.until(page, "document.documentElement.dataset.ready || document.getElementById('status').textContent")
        return page

    def until(self, page, expression, seconds=15):
        """Waits for something to be true, asked from outside: the page itself forbids eval."""
        end = time.time() + seconds
        while not page.evaluate(expression):
            self.assertLess(time.time(), end, expression)
            time.sleep(0.05)

    def pixels(self, page, selector):
        """What a canvas shows: rows x columns x (red, green, blue)."""
        found = page.evaluate(
            "selector => { const c = document.querySelector(selector); return [c.width, c.height, Array.from(c.getContext('2d').getImageData(0, 0, c.width, c.height).data)]; }",
            selector,
        )
        return np.array(found[2]).reshape(found[1], found[0], 4)[:, :, :3]

    def ids(self, page):
        return page.eval_on_selector_all(".card", "cards => cards.map(card => Number(card.dataset.id))")


class FromDisk(Pages):
    def test_one_request_and_no_problem_with_the_network_off(self):
        for run in ("flat", "volumes", "line", "box", "sea"):
            for width in (1180, 400):
                with self.subTest(run=run, width=width):
                    page = self.open(Folder.path / run, width=width)
                    self.assertEqual((len(self.requests), self.problems), (1, []))
                    self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), width)
        for how in ({"color_scheme": "dark"}, {"forced_colors": "active"}):
            self.open(Folder.path / "flat", **how)
            self.assertEqual(self.problems, [])
        page.emulate_media(media="print")
        self.assertFalse(page.locator("nav").is_visible())

    def test_headline_says_what_summary_says(self):
        page = self.open(Folder.path / "flat")
        said = json.loads(issfa(Folder.path, "summary", "flat", "--json"))
        tiles = page.locator(".tile").all_inner_texts()
        self.assertTrue(tiles[0].startswith(f"{said['n_persistent']}\n"), tiles)
        self.assertTrue(any(tile.startswith(f"{said['n_agreeing']}\n") and "agree" in tile for tile in tiles), tiles)
        self.assertEqual(page.locator(".verdict li").all_inner_texts(), said["verdict"])
        k = next(one for one in said["quantities"] if one["name"] == "features")
        self.assertIn(f"R-hat {k['split_r_hat']:.2f}", page.locator(".traces figcaption").first.inner_text())
        self.assertEqual(page.locator(".traces canvas").count(), page.locator(".traces figure").count())
        for words in ("issfa fit --config", "Indian buffet process", "Knowles"):
            self.assertIn(words, page.locator("main").inner_text())

    def test_sort_search_and_keys(self):
        page = self.open(Folder.path / "flat")
        lines = [line.split("\t") for line in (Folder.path / "flat/features.tsv").read_text().splitlines()]
        table = [dict(zip(lines[0], line)) for line in lines[1:]]
        self.assertEqual(self.ids(page), [int(row["id"]) for row in table])
        for sort, key in (("stability", lambda row: -float(row["stability"])), ("id", lambda row: int(row["id"]))):
            page.select_option("#sort", sort)
            # The table has four digits: features that are alike in these may stand in either order.
            of_id = {int(row["id"]): key(row) for row in table}
            self.assertEqual(sorted(self.ids(page)), sorted(of_id))
            self.assertEqual([of_id[one] for one in self.ids(page)], sorted(of_id.values()))
        order = self.ids(page)
        shown = lambda: page.locator("#feature h3").inner_text()
        page.locator(".card").first.click()
        self.assertEqual(shown(), f"Feature {order[0]}")
        for key, place in (("ArrowRight", 1), ("j", 2), ("k", 1), ("ArrowLeft", 0), ("ArrowLeft", 0)):
            page.keyboard.press(key)
            self.assertEqual(shown(), f"Feature {order[place]}", key)
        page.keyboard.press("/")
        page.keyboard.type(str(order[-1]))
        self.assertEqual(self.ids(page), [one for one in order if str(order[-1]) in str(one)])
        page.keyboard.press("Enter")
        self.assertEqual(shown(), f"Feature {self.ids(page)[0]}")
        self.assertEqual(self.problems, [])

    def test_maps_are_the_features(self):
        page = self.open(Folder.path / "flat")
        features = np.load(Folder.path / "flat/features.npy")
        for at, feature in enumerate(features):
            page.locator(".card").nth(at).click()
            drawn = self.pixels(page, 'canvas.map[data-kind="mean"]')
            self.assertEqual(drawn.shape[:2], feature.shape)
            redness = drawn[:, :, 0].astype(int) - drawn[:, :, 2]
            large = np.abs(feature) > 0.5 * np.abs(feature).max()
            if (feature[feature < 0] ** 2).sum() > 0.03 * (feature**2).sum():
                self.assertTrue((np.sign(redness) == np.sign(feature))[large].all(), at)
            else:
                # One-sided maps grow lighter.
                light = drawn @ [0.21, 0.72, 0.07]
                self.assertGreater(np.corrcoef(light[large], feature[large])[0, 1], 0.8)
        # Pictures of cards are drawn when they are scrolled to.
        page.locator("#gallery").scroll_into_view_if_needed()
        self.until(page, "document.querySelector('.card canvas').width === 10")

    def test_one_axis_is_a_line_with_a_band(self):
        page = self.open(Folder.path / "line")
        drawn = self.pixels(page, "#feature canvas.curve")
        feature = np.load(Folder.path / "line/features.npy")[0]
        blue = (drawn[:, :, 2] > drawn[:, :, 0] + 60) & (drawn[:, :, 0] < 60)
        height = [np.flatnonzero(blue[:, x]).mean() for x in range(drawn.shape[1]) if blue[:, x].any()]
        sites = np.interp(np.linspace(0, 11, len(height)), np.arange(12), feature)
        self.assertLess(np.corrcoef(height, sites)[0, 1], -0.95)
        band = (drawn[:, :, 2] > drawn[:, :, 0] + 20) & ~blue
        self.assertGreater(band.sum(), 200)

    def test_more_axes_have_sliders_and_north_is_up(self):
        page = self.open(Folder.path / "box")
        # The signal is at hour 3, latitudes 11 to 13 of 10 to 15 (stored south first), so it is drawn below the middle.
        self.assertEqual(page.locator('input[data-axis="0"]').input_value(), "3")
        drawn = self.pixels(page, 'canvas.map[data-kind="mean"]')
        self.assertEqual(drawn.shape[:2], (6, 7))
        strong = np.abs(drawn.astype(int) - drawn[0, 6]).sum(2) > 120
        rows, columns = np.nonzero(strong)
        self.assertEqual((rows.min(), rows.max(), columns.min(), columns.max()), (2, 4, 2, 4))
        page.locator('input[data-axis="0"]').fill("0")
        away = self.pixels(page, 'canvas.map[data-kind="mean"]')
        self.assertGreater(np.abs(away.astype(int) - drawn).max(), 100)
        page.locator('canvas.map[data-kind="mean"]').hover(position={"x": 3, "y": 3})
        self.assertIn("latitude 15, longitude 0", page.locator("#feature figcaption").first.inner_text())

    def test_where_there_are_no_data_it_is_grey_and_said(self):
        for scheme in ("light", "dark"):
            page = self.open(Folder.path / "sea", color_scheme=scheme)
            for kind in ("mean", "sd", "exceedance", "z"):
                drawn = self.pixels(page, f'canvas.map[data-kind="{kind}"]').astype(int)
                # Land is in the first rows of the array, which are the south: below.
                land = np.zeros((8, 9), bool)
                land[5:, :4] = True
                self.assertTrue((drawn[land] == 150).all(), kind)
                self.assertGreater(np.abs(drawn[~land] - 150).sum(1).min(), 60, kind)
            rows, columns = np.nonzero(self.pixels(page, 'canvas.map[data-kind="exceedance"]')[:, :, 0] > 200)
            self.assertEqual((rows.min(), rows.max(), columns.min(), columns.max()), (1, 2, 3, 5))
            self.assertEqual(page.locator("#feature .bar", has_text="no data").count(), 4)
            self.assertIn("Grey: no data", page.locator("#features .about").first.inner_text())
        self.assertEqual(self.open(Folder.path / "flat").locator(".bar", has_text="no data").count(), 0)

    def coloured(self, page, plane="axial"):
        drawn = self.pixels(page, f'canvas[data-plane="{plane}"]').astype(int)
        return (drawn[:, :, 0] - drawn[:, :, 2] > 60) & (drawn[:, :, 0] > 150), drawn

    def millimetres(self, page):
        return [float(x) for x in page.eval_on_selector_all(".slicer input[type=number]", "all => all.map(one => one.value)")]

    def test_slicer_moves_and_right_is_right(self):
        page = self.open(Folder.path / "volumes")
        self.assertLess(np.abs(np.array(self.millimetres(page)) - BLOB).max(), 4.5)
        slider = page.locator("input.threshold")
        slider.fill(str(0.5 * float(slider.get_attribute("max"))))
        hot, _ = self.coloured(page)
        rows, columns = np.nonzero(hot)
        # The blob is at x = 21 of -28.5 to 31.5 mm, y = 12 of -37.5 to 34.5: right of and above the middle.
        self.assertAlmostEqual(columns.mean() / hot.shape[1], (21 + 28.5) / 60, delta=0.06)
        self.assertAlmostEqual(1 - rows.mean() / hot.shape[0], (12 + 37.5) / 72, delta=0.06)
        axial = page.locator('canvas[data-plane="axial"]')
        box = axial.bounding_box()
        # The column of x = -18 (16th of 20 from the right), the row of y = -12.
        page.mouse.move(box["x"] + box["width"] * (-18 + 28.5) / 60, box["y"] + box["height"] * (1 - (-12 + 37.5) / 72))
        page.mouse.down()
        page.mouse.up()
        x, y, z = self.millimetres(page)
        self.assertLessEqual(max(abs(x + 18), abs(y + 12)), 3)
        for key, move in (("ArrowRight", (3, 0, 0)), ("ArrowUp", (0, 3, 0)), ("PageUp", (0, 0, 4)), ("ArrowLeft", (-3, 0, 0))):
            before = np.array(self.millimetres(page))
            axial.press(key)
            self.assertEqual(list(np.array(self.millimetres(page)) - before), list(move), key)
        before = np.array(self.millimetres(page))
        axial.hover()
        page.mouse.wheel(0, 100)
        self.until(page, f"Number(document.querySelectorAll('.slicer input[type=number]')[2].value) === {before[2] - 4}")
        inputs = page.locator(".slicer input[type=number]")
        for at, place in enumerate(BLOB):
            inputs.nth(at).fill(str(place))
            inputs.nth(at).press("Enter")
        self.assertLess(np.abs(np.array(self.millimetres(page)) - BLOB).max(), 2.1)
        self.assertEqual(self.problems, [])

    def test_threshold_hides_what_is_below(self):
        page = self.open(Folder.path / "volumes")
        slider = page.locator("input.threshold")
        most = float(slider.get_attribute("max"))
        counts = []
        for share in (0.02, 0.3, 0.6, 0.99):
            slider.fill(str(share * most))
            counts.append(int(self.coloured(page)[0].sum()))
        self.assertTrue(all(more > fewer for more, fewer in zip(counts, counts[1:])), counts)
        # As many voxels as the stored feature has there.
        feature = nibabel.load(Folder.path / "volumes/features.nii.gz").get_fdata()[..., 0]
        slider.fill(str(0.5 * most))
        z = round((self.millimetres(page)[2] + 20) / 4)
        expected = (feature[:, :, z] >= 0.5 * most).sum()
        hot, drawn = self.coloured(page)
        per_voxel = drawn.shape[0] * drawn.shape[1] / (20 * 24)
        self.assertAlmostEqual(hot.sum() / per_voxel, expected, delta=0.35 * expected + 2)

    def test_names_do_nothing(self):
        page = self.open(Folder.evil)
        page.wait_for_timeout(200)
        self.assertEqual((page.evaluate("'hacked' in window"), self.problems, len(self.requests)), (False, [], 1))
        self.assertIn(EVIL, page.locator("#settings").inner_text())
        self.assertIn(EVIL, page.locator("#feature").inner_text())
        self.assertEqual(page.locator("main img").count(), 0)

    def test_burn_in_has_something_to_see(self):
        folder = Folder.path
        issfa(folder, "fit", "sim/observations.npy", "--grid", "12x10", "--sweeps", 100000, "--burn-in", 99000, "--time-budget", "1s", "--out", "early")
        page = self.open(folder / "early")
        text = page.locator("#headline").inner_text()
        self.assertIn("in burn-in", text)
        self.assertNotIn("NaN", page.locator("main").inner_text())
        self.assertGreater(page.locator(".card").count(), 0)
        said = issfa(folder, "summary", "early")
        self.assertNotIn("NaN", said)

    def test_light_pages_are_small_and_quick(self):
        make_light(Folder.path)
        said = issfa(Folder.path, "fit", "many.npy", "--init", "kmeans:400", "--sweeps", 6, "--burn-in", 2, "--thin", 1, "--report", "light", "--out", "many")
        self.assertIn("one map a feature", said)
        page = self.open(Folder.path / "many")
        n = len(self.ids(page))
        ready, size = int(page.evaluate("document.documentElement.dataset.ready")), (Folder.path / "many/report.html").stat().st_size
        print(f"light: {n} features on 64x64, {size / 1e6:.2f} MB, ready after {ready} ms")
        self.assertGreater(n, 300)
        self.assertLess(size / n, 3e6 / 400)
        self.assertLess(ready, 1500)


class Alive(Pages):
    def start(self, *words):
        process = subprocess.Popen([ISSFA, *map(str, words)], cwd=Folder.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def watch(self, run):
        process = self.start("watch", run)
        address = re.match(r"(http://127\.0\.0\.1:\d+/)", process.stdout.readline())
        self.assertTrue(address)
        return process, address.group(1)

    def test_damaged_lines_are_left_out_and_said(self):
        shutil.copytree(Folder.path / "flat", Folder.path / "hurt")
        lines = (Folder.path / "hurt/trace.csv").read_bytes().split(b"\n")
        lines[7] = b"1,7,\xff\xfe"
        (Folder.path / "hurt/trace.csv").write_bytes(b"\n".join(lines) + b"1,8")
        watch, address = self.watch("hurt")
        page = self.open(address, offline=False)
        self.until(page, "document.getElementById('status').textContent.includes('line 8 cannot be read')")
        # What cannot be shown is said; and the watch goes on.
        self.until(page, "document.getElementById('headline').textContent.includes('trace.csv')")
        said = page.evaluate(f"fetch('{address}events').then((answer) => answer.body.getReader()).then(async (reader) => {{ let text = ''; const end = Date.now() + 2500; while (Date.now() < end) {{ const part = await Promise.race([reader.read(), new Promise((done) => setTimeout(done, 300))]); if (part?.value) text += new TextDecoder().decode(part.value); }} return text; }})")
        self.assertEqual((said.count("event: reset"), said.count("event: trace")), (1, 1), "it is not read anew again and again")
        self.assertIsNone(watch.poll())

    def test_traces_of_any_scale_are_drawn(self):
        issfa(Folder.path, "fit", "sim/observations.npy", "--grid", "12x10", "--sweeps", 1, "--out", "extreme")
        trace = Folder.path / "extreme/trace.csv"
        names, first = (line.split(",") for line in trace.read_text().splitlines())
        # Sweeps that no checkpoint knows of yet: numbers that only their last bit tells apart, of very many orders of magnitude, and
        # with an end from which steps that are added up lead nowhere.
        next_to = repr(float(np.nextafter(float(first[names.index("noise_variance")]), 2.0)))
        with trace.open("a") as out:
            for sweep in range(2, 12):
                now = {"sweep": str(sweep), "noise_variance": next_to, "theta_1": ("1e-45", "1e40")[sweep % 2], "theta_2": ("0.0108", "5000")[sweep % 2]}
                out.write(",".join(now.get(name, value) for name, value in zip(names, first)) + "\n")
        _, address = self.watch("extreme")
        page = self.open(address, offline=False)
        self.until(page, "Number(document.documentElement.dataset.drawnSweep) === 11")
        page.wait_for_timeout(300)
        charts = page.eval_on_selector_all(".traces .plot canvas", "all => all.map((one) => new Set(one.getContext('2d').getImageData(0, 0, one.width, one.height).data).size)")
        self.assertGreater(min(charts), 2, "each has been drawn")
        self.assertEqual(self.problems, [])

    def fit(self, run, *more):
        # As slow as a fit that one would watch.
        rows = np.random.default_rng(7).normal(0, 1, (300, 40, 40)).astype(np.float32)
        np.save(Folder.path / "rows.npy", rows)
        fit = self.start("fit", "rows.npy", "--noise", "white", "--init", "kmeans:30", "--sweeps", 100000, "--burn-in", 90000, "--checkpoint-every", "1s", "--threads", 1, "--out", run, *more)
        end = time.time() + 30
        while not (Folder.path / run / "config.toml").is_file():
            self.assertLess(time.time(), end)
            time.sleep(0.05)
        return fit

    def last_sweep(self, run):
        lines = (Folder.path / run / "trace.csv").read_text().rsplit("\n", 2)
        return int(lines[-2].split(",")[1]) if lines[-2][0].isdigit() else 0

    def files(self, run):
        return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in (Folder.path / run).rglob("*")}

    def test_a_running_fit_its_death_and_its_end(self):
        fit = self.fit("live")
        watch, address = self.watch("live")
        page = self.open(address, offline=False)
        drawn = "Number(document.documentElement.dataset.drawnSweep)"
        self.until(page, f"{drawn} > 0")
        self.assertIn("Running", page.locator("#status").inner_text())
        for _ in range(3):
            sweep, start = self.last_sweep("live") + 1, time.time()
            self.until(page, f"{drawn} >= {sweep}", 10)
            self.assertLess(time.time() - start, 2)
        self.assertGreater((self.pixels(page, ".traces canvas") > 0).sum(), 100)
        # In burn-in there are features to see.
        self.until(page, "document.querySelectorAll('.card').length > 0")
        self.assertIn("in burn-in", page.locator("#headline").inner_text())
        os.kill(fit.pid, signal.SIGKILL)
        fit.wait()
        self.until(page, "document.getElementById('status').textContent.startsWith('Stopped at sweep')", 10)
        self.assertIn("resume with issfa resume live", page.locator("#status").inner_text())
        before = self.files("live")
        page.reload()
        self.until(page, "document.querySelectorAll('.card').length > 0")
        self.assertIsNone(watch.poll())
        self.assertEqual(self.files("live"), before, "watching writes nothing")
        self.assertEqual(self.problems, [])
        resumed = self.start("resume", "live", "--time-budget", "2s")
        self.until(page, "document.getElementById('status').textContent.startsWith('Running')")
        resumed.communicate(timeout=60)
        self.assertEqual(resumed.returncode, 0)
        self.until(page, "document.getElementById('status').textContent.startsWith('Stopped at sweep')", 10)
        live = json.loads((Folder.path / "live/live.json").read_text())
        print(f"live.json: {live['live_seconds']:.5f} s in {live['seconds']:.2f} s of sweeps, with a checkpoint every second")
        self.assertLess(live["live_seconds"], 0.01 * live["seconds"])

    def test_a_finished_run_is_shown_with_its_results(self):
        _, address = self.watch("flat")
        page = self.open(address, offline=False)
        self.until(page, "document.getElementById('status').textContent.startsWith('Finished')", 10)
        self.until(page, "document.querySelectorAll('.card').length > 0")
        still = self.open(Folder.path / "flat")
        self.assertEqual(self.ids(page), self.ids(still))
        self.assertTrue((self.pixels(page, "canvas.map") == self.pixels(still, "canvas.map")).all())

    def ask(self, port, host, method="GET", path="/"):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.putrequest(method, path, skip_host=True)
        if host:
            connection.putheader("Host", host)
        connection.endheaders()
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.status, body

    def test_other_names_are_refused(self):
        _, address = self.watch("flat")
        port = int(re.search(r":(\d+)/", address).group(1))
        self.assertEqual(self.ask(port, f"127.0.0.1:{port}")[0], 200)
        self.assertEqual(self.ask(port, f"localhost:{port}")[0], 200)
        for host in ("evil.example", f"evil.example:{port}", f"127.0.0.1.evil.example:{port}", "10.0.0.1"):
            for path in ("/", "/data.json", "/events"):
                status, body = self.ask(port, host, path=path)
                self.assertEqual(status, 421, host)
                self.assertNotIn(b"overview", body)
        self.assertEqual(self.ask(port, "localhost", "POST")[0], 405)
        self.assertEqual(self.ask(port, "localhost", path="/../config.toml")[0], 404)

    def test_the_machine_is_known_by_its_names_where_others_may_ask(self):
        watch = self.start("watch", "flat", "--listen", "0.0.0.0")
        text = watch.stdout.readline() + watch.stdout.readline()
        self.assertIn("can read this run", text)
        port = int(re.search(r"http://[^/]*:(\d+)/", text).group(1))
        for host in (socket.gethostname(), socket.gethostname().upper() + f":{port}", "10.0.0.1", f"localhost:{port}"):
            self.assertEqual(self.ask(port, host)[0], 200, host)
        for host in ("evil.example", socket.gethostname() + ".evil.example", ""):
            self.assertNotEqual(self.ask(port, host, path="/data.json")[0], 200, host)

    def test_wrong_use(self):
        for words, expected in ((["watch", "nowhere"], "nowhere"), (["watch", "flat", "--listen", "here"], "--listen"), (["report", "flat", "--axes", "a"], "--axes")):
            done = subprocess.run([ISSFA, *words], cwd=Folder.path, capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn(expected, done.stderr)


if __name__ == "__main__":
    Folder.make()
    unittest.main(verbosity=2)
