"""Size and time of an installation, CPU time of a command, and memory of a service, each in a new environment.

    python benchmarks/installing.py [--repeats 5]

Builds the wheel, installs it with pip into an environment for inference, one with `serve` and one with all extras that
training and export use, at the versions of constraints.txt, and prints one JSON line per measurement. The first
installation also fills pip's cache if it is empty. CPU times are of the whole process, medians of the repeats.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXTRAS = {"inference": "", "serve": "[serve]", "all": "[serve,train,export,distill,pictures,gguf]"}
TEXT = "Two dogs are playing in the snow."
COMMANDS = {
    "kermit --help": ["--help"],
    "kermit translate": ["translate", "--to", "de", TEXT],
    "kermit translate, parallel": ["translate", "--to", "de", TEXT, "--decoding", "parallel"],
}
PORT = "8765"


def report(**row):
    print(json.dumps(row), flush=True)


def megabytes(folder):
    return round(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6, 1)


def build_wheel(folder):
    """Build the wheel from a copy of the project, so that nothing is left in it."""
    copy = folder / "project"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "checkpoints", "build", "*.egg-info"))
    pip = [sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "--wheel-dir", str(folder), str(copy)]
    subprocess.run(pip, check=True)
    [wheel] = folder.glob("*.whl")
    report(measured="wheel", megabytes=round(wheel.stat().st_size / 1e6, 1))
    return wheel


def install(wheel, name, folder):
    """Install the wheel with extras into a new environment, and return its programs."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    [packages] = folder.glob("lib/*/site-packages")
    before, start = megabytes(packages), time.perf_counter()
    pip = [str(folder / "bin" / "pip"), "--quiet", "--disable-pip-version-check", "install", f"{wheel}{EXTRAS[name]}"]
    subprocess.run(pip, check=True, env=os.environ | {"PIP_CONSTRAINT": str(ROOT / "constraints.txt")})
    seconds = round(time.perf_counter() - start, 1)
    count = len(list(packages.glob("*.dist-info")))
    report(installed=name, packages=count, megabytes=round(megabytes(packages) - before, 1), seconds=seconds)
    return folder / "bin"


def cpu_seconds(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def time_commands(programs, repeats):
    for name, arguments in COMMANDS.items():
        command = [str(programs / "kermit"), *arguments]
        cpu_seconds(command)  # compiles and caches
        found = [cpu_seconds(command) for _ in range(repeats)]
        report(command=name, cpu_seconds=round(statistics.median(found), 2))


def resident(process):
    """Return the memory of a process in megabytes: now, and at most so far."""
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    sizes = dict(line.split(":") for line in status.splitlines())
    return [round(int(sizes[name].split()[0]) / 1024) for name in ("VmRSS", "VmHWM")]


def serve(programs):
    """Measure a service after its start and after 200 requests."""
    process = subprocess.Popen([str(programs / "kermit"), "serve", "--port", PORT], stderr=subprocess.DEVNULL)
    try:
        url, body = f"http://127.0.0.1:{PORT}", json.dumps({"texts": [TEXT], "to": "de"}).encode()
        for _ in range(100):
            try:
                urllib.request.urlopen(f"{url}/healthz").read()
                break
            except OSError:
                time.sleep(0.1)
        report(service="started", megabytes=resident(process)[0])
        for _ in range(200):
            request = urllib.request.Request(f"{url}/v1/translate", body, {"Content-Type": "application/json"})
            urllib.request.urlopen(request).read()
        now, most = resident(process)
        report(service="after 200 requests", megabytes=now, at_most=most)
    finally:
        process.terminate()
        process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        wheel = build_wheel(folder)
        time_commands(install(wheel, "inference", folder / "inference"), options.repeats)
        serve(install(wheel, "serve", folder / "serve"))
        install(wheel, "all", folder / "all")


if __name__ == "__main__":
    main()
