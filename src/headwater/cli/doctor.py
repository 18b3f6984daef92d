"""`headwater doctor`: what is wrong, and what could go wrong?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.exits import CliError, one_line
from headwater.cli.output import Json, write_json, write_line
from headwater.cli.records import DoctorRecord, FindingRecord

if TYPE_CHECKING:
    from headwater.cli.checkup import Finding


def doctor(
    directory: Annotated[
        Path | None,
        typer.Argument(
            metavar="DIR",
            help="A data directory; by default, the one in the settings.",
            readable=False,  # if it is not readable, that is a finding
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="A TOML file of settings.", readable=False),
    ] = None,
    json: Json = False,
) -> None:
    """Find problems with a configuration, a machine or a data directory.

    Reads the settings as `headwater serve` would, checks the machine and
    the data directory, and tells you what it finds and what to do about it.
    It changes nothing, and is safe while a server is running. Exits with 1
    if there is a problem; hints do not count. `headwater verify` checks all
    data; this checks a sample.

    Examples:

      headwater doctor
      headwater doctor /var/lib/headwater --config /etc/headwater.toml
      headwater doctor --json | jq '.findings[] | select(.level != "ok")'
    """
    findings = list(_findings(directory, config))
    problems = sum(finding.level == "problem" for finding in findings)
    if json:
        records = [FindingRecord(**finding._asdict()) for finding in findings]
        write_json(DoctorRecord(ok=not problems, findings=records))
    else:
        for finding in findings:
            _show(finding)
    if problems:
        raise CliError(f"{problems} problem{'s' if problems > 1 else ''} found")


def _findings(directory: Path | None, config: Path | None) -> list[Finding]:
    from headwater.cli.checkup import configuration, machine
    from headwater.cli.checkup import directory as place

    flags = {"data": directory} if directory is not None else {}
    settings, findings = configuration.check(config, flags)
    data = settings.data if settings else directory
    use = place.use_of(data) if data else place.Use(False, "")
    if settings is not None:
        findings += machine.check(settings, in_use=use.held)
    if data is not None and not (settings and settings.engine_kind != "sqlite"):
        findings += place.check(data, use)
    return findings


def _show(finding: Finding) -> None:
    write_line(f"{finding.level:<8} {finding.about:<12} {one_line(finding.what)}")
    if finding.advice:
        write_line(f"{'':<21} → {one_line(finding.advice)}")
