"""A Homebrew formula for a source distribution: `make formula URL=https://…/headwater-X.tar.gz`.

The source distribution pins its dependencies by hash, so the formula names none of them.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tomllib
from pathlib import Path

PYTHON = "3.13"
ROOT = Path(__file__).parent.parent

FORMULA = """\
# Written by scripts/homebrew_formula.py: do not edit.
class Headwater < Formula
  include Language::Python::Virtualenv

  desc "{desc}"
  homepage "{homepage}"
  url "{url}"
  version "{version}"
  sha256 "{sha256}"
  license "{license}"

  depends_on "python@{python}"

  def install
    venv = virtualenv_create(libexec, "python{python}")
    system libexec/"bin/python", "-m", "pip", "install", "--require-hashes",
           "--requirement", buildpath/"requirements/run.txt"
    venv.pip_install_and_link buildpath
    generate_completions_from_executable(bin/"headwater", "completion",
                                         shells: [:bash, :zsh, :fish])
  end

  service do
    run [opt_bin/"headwater", "serve", "--data", var/"headwater"]
    keep_alive true
    log_path var/"log/headwater.log"
    error_log_path var/"log/headwater.log"
  end

  test do
    assert_match version.to_s, shell_output("#{{bin}}/headwater --version")
    port = free_port
    server = spawn bin/"headwater", "serve", "--memory", "--port", port.to_s
    sleep 5
    assert_match "ready", shell_output("#{{bin}}/headwater health --url http://127.0.0.1:#{{port}}")
  ensure
    Process.kill "TERM", server
  end
end
"""


def formula(sdist: Path, url: str) -> str:
    """The text of the formula."""
    about = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    if not url.startswith("https://") or '"' in url or "#{" in url:
        raise ValueError("--url is the https address where the source distribution will be")
    return FORMULA.format(
        desc=about["description"],
        homepage=url.rpartition("/")[0],
        url=url,
        version=sdist.name.removeprefix("headwater-").removesuffix(".tar.gz"),
        sha256=hashlib.sha256(sdist.read_bytes()).hexdigest(),
        license=about["license"],
        python=PYTHON,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--url", required=True, help="where the source distribution will be")
    parser.add_argument("sdist", type=Path)
    given = parser.parse_args()
    try:
        sys.stdout.write(formula(given.sdist, given.url))
    except (OSError, ValueError) as error:
        print(f"homebrew_formula: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
