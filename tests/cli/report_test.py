"""sluice report: the page, the trace, the comparison of two reports."""

import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree
import unittest

from program import BRIEF, DEMO, IN_PROCESS, SANITIZED, Case, run_json, sluice

NUMBER = r"-?[0-9.]+"


@unittest.skipIf(BRIEF, IN_PROCESS)
class ReportTest(Case):
    def report(self, name="r.json", *options):
        path = self.path / name
        if not options and not SANITIZED:
            plan = run_json("plan", DEMO, "--prompt-tokens", "8", "-n", "8")
            options = ("--memory", plan["smallest"]["memory"])
        run_json("run", DEMO, "-p", "Anne had", "-n", "8", "--report", path, *options)
        return path

    def edited(self, report, **edits):
        """A copy of the report with values replaced: memory__budget=1 is {"memory": {"budget": 1}}."""
        data = json.loads(report.read_text())
        for key, value in edits.items():
            *parents, last = key.split("__")
            target = data
            for parent in parents:
                target = target[parent]
            target[last] = value
        path = self.path / "edited.json"
        path.write_text(json.dumps(data))
        return path

    def page(self, report):
        result = sluice("report", report, "--html", self.path / "r.html")
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))
        return (self.path / "r.html").read_text()

    def test_page_stands_alone_and_is_well_formed(self):
        text = self.page(self.report())
        ElementTree.fromstring(text)  # as XML, so with every SVG in it
        tags = set()
        parser = HTMLParser()
        parser.handle_starttag = parser.handle_startendtag = lambda tag, attributes: tags.add(tag)
        parser.feed(text)
        parser.close()
        self.assertFalse(tags & {"script", "link", "img", "iframe", "object", "a"}, tags)
        for reference in ("http:", "https:", "url(", "src=", "href=", "@import"):
            self.assertNotIn(reference, text)
        for mention in ("Memory over time", "budget", "predicted peak", "Who held memory", "runtime", "prefers-color-scheme"):
            self.assertIn(mention, text)

    def test_area_of_the_page_peaks_where_the_ledger_did(self):
        report = self.report()
        memory = json.loads(report.read_text())["memory"]
        page = ElementTree.fromstring(self.page(report))
        svg = page.find(".//svg")
        ground = max(float(line.get("y1")) for line in svg.iter("line") if line.get("class") == "grid")
        levels = [float(line.get("y1")) for line in svg.iter("line") if line.get("class") == "level"]
        scale = memory["predicted_peak"] / (ground - max(levels))  # the budget's line lies above it, or is not there
        tops = [float(y) for path in svg.iter("path") for y in re.findall(rf"V({NUMBER})", path.get("d"))]
        self.assertAlmostEqual((ground - min(tops)) * scale / memory["ledger_peak"], 1, delta=1e-3)
        cells = [cell.get("title") for cell in page.iter("td")]
        self.assertIn(f"{memory['ledger_peak']} bytes", cells)
        for use in {a["use"] for a in memory["peak_holders"]}:
            held = sum(a["bytes"] for a in memory["peak_holders"] if a["use"] == use)
            self.assertIn(f"{held} bytes", cells)
        self.assertEqual([m.find("title").text for m in svg.iter("line") if m.get("class") == "moment"], ["load", "run"])

    def test_page_shows_what_was_measured_and_escapes_it(self):
        report = self.report("r.json", "--quantization", "fp8")
        page = self.page(report)
        self.assertIn("Of 56 quantized tensors, the worst first. 36 more are not shown.", page)
        name = "</title><script>alert(1)</script>&\u0001"
        data = json.loads(report.read_text())
        data["model"] = name
        data["memory"]["phases"][0]["name"] = name
        data["memory"]["accounts"][0]["owner"] = data["memory"]["peak_holders"][0]["owner"] = name
        data["load"]["tensors"][3]["name"] = name
        data["stream"] = {"bytes_per_sweep": 10, "bytes_read": 20, "wait_seconds": 0.5, "units": [
            {"name": name, "bytes": 20, "stalls": {"disk": 0.5, "compute": 0.25, "copy": 0.125}}]}
        data["disk"] = {"samples": [[0.0, 0], [0.001, 4000000], [0.002, 5000000]]}
        report.write_text(json.dumps(data))
        page = self.page(report)
        ElementTree.fromstring(page)
        self.assertNotIn("<script", page)
        self.assertNotIn("\u0001", page)
        for mention in ("&lt;script&gt;", "Disk throughput", "GB/s", "Stalls by unit", "0.125 s"):
            self.assertIn(mention, page)

    def test_trace_has_the_ledgers_counters(self):
        report = self.report()
        data = json.loads(report.read_text())
        data["disk"] = {"samples": [[0.0, 0], [0.002, 4000000], [0.003, 4000000]]}
        report.write_text(json.dumps(data))
        self.assertEqual(sluice("report", report, "--html", self.path / "h", "--trace", self.path / "t").returncode, 0)
        self.assertTrue((self.path / "h").exists())
        events = json.loads((self.path / "t").read_text())["traceEvents"]
        self.assertTrue(all({"name", "ph", "ts", "pid", "tid"} <= e.keys() for e in events))
        accounts, held, want = data["memory"]["accounts"], {}, []
        for seconds, account, delta in data["memory"]["timeline"]:
            use = accounts[account]["use"]
            held[use] = held.get(use, 0) + delta
            want.append((round(seconds * 1e6, 3), {k: v for k, v in held.items() if v}))
        have = [(e["ts"], {k: v for k, v in e["args"].items() if v}) for e in events if e["name"] == "memory"]
        self.assertEqual(have, want)
        self.assertEqual(max(sum(e["args"].values()) for e in events if e["name"] == "memory in all"), data["memory"]["ledger_peak"])
        self.assertEqual([e["args"]["GB/s"] for e in events if e["name"] == "disk"], [2, 0, 0])
        self.assertEqual([e["name"] for e in events if e["ph"] == "X"][:2], ["load", "run"])

    def test_comparison_and_its_exit_status(self):
        a = self.report()
        same = sluice("report", a, a)
        self.assertEqual((same.returncode, same.stderr), (0, ""))
        self.assertIn("measured peak", same.stdout)
        data = json.loads(a.read_text())
        more = self.edited(a, memory__measured_peak=data["memory"]["measured_peak"] * 2)
        self.assert_fails(1, "measured peak grew", "report", a, more)
        self.assertEqual(sluice("report", more, a).returncode, 0)
        self.assertEqual(sluice("report", a, more, "--threshold", "100").returncode, 0)
        self.assertEqual(sluice("report", a, more, "--threshold-memory", "inf").returncode, 0)
        self.assert_fails(1, "threshold of 5 %", "report", a, more, "--threshold-speed", "100")
        result = sluice("report", a, more, "--json")
        self.assertEqual(result.returncode, 1)
        out = json.loads(result.stdout)
        self.assertEqual(out["regressions"], ["measured_peak"])
        self.assertAlmostEqual(out["figures"]["measured_peak"]["change_percent"], 100)
        self.assertEqual(out["figures"]["measured_peak"]["a"], data["memory"]["measured_peak"])
        slow = self.edited(a, timings__decode_tokens_per_second=data["timings"]["decode_tokens_per_second"] / 2)
        self.assert_fails(1, "decode fell", "report", a, slow)
        self.assertEqual(sluice("report", a, slow, "--threshold-speed", "60").returncode, 0)
        missing = sluice("report", a, self.edited(a, timings={}))
        self.assertEqual(missing.returncode, 0, missing.stderr)
        self.assertIn("missing", missing.stdout)

    def test_wrong_lines_and_files(self):
        a = self.report()
        before = a.read_bytes()
        out = self.path / "out"
        self.assert_fails(2, "one report", "report", a, a, "--html", out)
        self.assert_fails(2, "second one", "report", a, "--threshold", "3")
        self.assert_fails(2, "percentage", "report", a, a, "--threshold=-1")
        self.assert_fails(2, "percentage", "report", a, a, "--threshold", "nan")
        self.assert_fails(2, "the report itself", "report", a, "--html", a)
        self.assert_fails(2, "same file", "report", a, "--html", out, "--trace", out)
        self.assert_fails(1, "--html /nowhere/x", "report", a, "--html", "/nowhere/x")
        self.assert_fails(1, "--trace /dev/full", "report", a, "--trace", "/dev/full")
        self.assertEqual(a.read_bytes(), before)
        run_json("plan", DEMO, "--report", self.path / "plan.json")
        for args in ([self.path / "plan.json", "--html", out], [a, self.path / "plan.json"]):
            self.assert_fails(3, "plan.json: is not a report", "report", *args)

    def test_damaged_reports_are_refused(self):
        a = self.report()
        out = self.path / "out"
        for mention, edits in {
            "timeline must be a list": {"memory__timeline": 3},
            "no account 5000": {"memory__timeline": [[0, 5000, 1]]},
            "less than nothing": {"memory__timeline": [[0, 0, -1]]},
            "time goes back": {"memory__timeline": [[1, 0, 1], [0.5, 0, 1]]},
            "samples must be a list": {"disk": {"samples": "many"}},
            "become less": {"disk": {"samples": [[0, 9], [1, 8]]}},
            "units must be a list": {"stream": {"bytes_read": 0, "units": 7}},
            "verb must be a string": {"verb": ["run"]},
            "must not be negative": {"load__seconds": -1},
        }.items():
            with self.subTest(mention):
                damaged = self.edited(a, **edits)
                for args in ([damaged], [damaged, "--html", out], [damaged, "--trace", out], [a, damaged]):
                    self.assert_fails(3, mention, "report", *args)
        self.assertFalse(out.exists())
        self.edited(a).write_bytes(a.read_bytes()[:1000])
        self.assert_fails(3, "not valid JSON", "report", self.path / "edited.json", "--html", out)
