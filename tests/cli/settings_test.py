"""Where values come from: the command line, the environment, a file; prompts as arguments and through pipes; completions."""

import json
import os
import re
import subprocess

from program import DEMO, Case, run_json, sluice

MiB = 1 << 20
# What bash does when Tab is pressed behind the words.
TAB = """. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _sluice; printf '%s\\n' "${COMPREPLY[@]}" """


class SettingsTest(Case):
    def with_variables(self, *args, **variables):
        return sluice(*args, env=os.environ | variables)

    def budget(self, *args, **variables):
        result = self.with_variables("plan", DEMO, "--json", *args, **variables)
        self.assertIn(result.returncode, (0, 4), result.stderr)  # a sanitized process takes more than the least of them
        return json.loads(result.stdout)["budget"]

    def config(self, text):
        (self.path / "config.toml").write_text(text)
        return "--config", self.path / "config.toml"

    def test_the_command_line_goes_before_the_environment_and_that_before_the_file(self):
        file = self.config('memory = "100MiB"  # of all\nmax_num_seqs = 2\n[serve]\nport = 80\n[bench]\nmemory = "1MiB"\n')
        self.assertEqual(self.budget(*file), 100 * MiB)
        self.assertEqual(self.budget(SLUICE_CONFIG=str(file[1])), 100 * MiB)
        self.assertEqual(self.budget(*file, SLUICE_MEMORY="200m"), 200 * MiB)
        self.assertEqual(self.budget(*file, "--memory", "300M", SLUICE_MEMORY="200m"), 300 * MiB)
        self.assertEqual(self.budget(*self.config('memory = "100MiB"\n[plan]\nmemory = "400M"\n')), 400 * MiB)

    def test_flags_and_lists(self):
        run = ("run", DEMO, "In the beginning", "-n", "40", "--quiet")
        plain = run_json(*run)["text"]
        first, second = plain.split()[8], plain.split()[4]
        expected = plain[:min(plain.find(first), plain.find(second))]
        for file, variables in (((), {"SLUICE_STOP": f"{first}\n{second}", "SLUICE_JSON": "1"}),
                                (self.config(f"json = true\nstop = [{json.dumps(first)}, {json.dumps(second)}]"), {})):
            result = self.with_variables(*run, *file, **variables)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(json.loads(result.stdout)["text"], expected)
        self.assert_fails(3, "/none", *run, "--config", self.path / "none")
        off = self.with_variables(*run, SLUICE_JSON="false")
        self.assertEqual(off.stdout, plain + "\n")

    def test_what_is_wrong_is_said_with_its_place(self):
        for variables, why in (({"SLUICE_JSON": "maybe"}, "SLUICE_JSON=maybe: must be true or false"),
                               ({"SLUICE_THREADS": "0"}, "set by SLUICE_THREADS"), ({"SLUICE_MEMORY": "much"}, "set by SLUICE_MEMORY")):
            result = self.with_variables("plan", DEMO, **variables)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(why, result.stderr)
            self.assertEqual(self.with_variables("plan", "--help", **variables).returncode, 0)
        for text, why in (("memroy = 1", "memroy is not an option; did you mean memory?"), ("[plam]\nmemory = 1", "did you mean plan?"),
                          ("[plan]\nport = 1", "plan.port is not an option"), ("a\nb", "line 1"), ("memory = [1, 2]", "takes one"),
                          ("threads = 0", "set by threads in"), ("threads = {a = 1}", "threads is not a command"),
                          ('config = "x"', "has no place"), ("stop = [[1]]", "must not contain lists")):
            self.assert_fails(2, why, "plan", DEMO, *self.config(text))

    def test_prompts_as_arguments_and_through_pipes(self):
        usual = run_json("run", DEMO, "-p", "In the beginning", "-n", "8")["token_ids"]
        self.assertEqual(run_json("run", DEMO, "In the beginning", "-n", "8")["token_ids"], usual)
        for text in ("In the beginning", "In the beginning\n"):
            piped = sluice("run", DEMO, "-n", "8", "--json", "--quiet", input=text)
            self.assertEqual(json.loads(piped.stdout)["token_ids"], usual)
        self.assert_fails(2, "give a prompt", "run", DEMO, input="")
        self.assert_fails(2, "give the prompt once", "run", DEMO, "a", "-p", "b")
        self.assert_fails(2, "--threads", "run", DEMO, "--threads", "8G", "x")

    def complete(self, *words):
        script = self.path / "completions"
        script.write_text(sluice("docs", "bash").stdout)
        result = subprocess.run(["bash", "-c", TAB, "bash", script, *words], capture_output=True, text=True)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout.split()

    def test_completions(self):
        self.assertIn("int8", self.complete("sluice", "run", "--quantization", ""))
        self.assertEqual(self.complete("sluice", "plan", "M", "--quantization", "=", "int"),
                         ["int8", "int8_weight_only", "int4_g128", "int4_g32", "int4"])
        self.assertEqual(self.complete("sluice", "run", "--reasoning", ""), ["show", "hide"])
        self.assertEqual(set(self.complete("sluice", "bench", "")) - {"--help", "-h"}, {"load", "disk", "decode", "prefill", "engine"})
        self.assertIn("--requests", self.complete("sluice", "bench", "engine", "--"))
        self.assertEqual(self.complete("sluice", "to"), ["tokenize"])
        self.assertEqual(self.complete("sluice", "help", "det"), ["detokenize"])
        self.assertEqual(self.complete("sluice", "run", "M", "--max-t"), ["--max-tokens"])
        fish = sluice("docs", "fish").stdout.splitlines()
        self.assertTrue(all(re.fullmatch(r"complete -c sluice .* -d '(\\.|[^'\\])*'", line) for line in fish))
        self.assertTrue(any("-l quantization -x -a 'none fp8" in line for line in fish))
        self.assertTrue(any(line.startswith("complete -c sluice -f -n '__fish_use_subcommand' -a run -d") for line in fish))
