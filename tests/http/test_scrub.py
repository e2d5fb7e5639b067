"""The search for damage, as an operator sees it."""

from pathlib import Path

import pytest

from schemas.directories import ScrubReport
from tests.support.service import running

pytestmark = pytest.mark.anyio


async def test_the_report_names_what_a_search_found(tmp_path: Path) -> None:
    """Before the first scrub it is empty.

    Then it has topic, partition, file, position and offset.
    """
    async with running(tmp_path, scrub_interval_ms=86_400_000) as api:
        await api.create()
        await api.append(1, 2)
        await api.append(3)
        before = ScrubReport.model_validate_json((await api.client.get("/v1/scrub")).content)
        assert (before.interval_ms, before.end_timestamp) == (86_400_000, -1)
        assert before.damage == []

        file = tmp_path / "events-0" / f"{0:020}.log"
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
        api.local.runtime.scrubber.run_pass()

        after = ScrubReport.model_validate_json((await api.client.get("/v1/scrub")).content)
        assert after.checked_bytes == len(content)
        (place,) = after.damage
        assert after.damaged_count == 1
        assert (place.topic, place.partition, place.offset) == ("events", 0, 2)
        assert (place.file, 0 < place.position < len(content)) == (file.name, True)
        assert place.problem.startswith(f"events-0/{file.name}, byte ")
        metrics = (await api.client.get("/metrics")).text
        assert "tidelog_scrub_damage_total 1.0" in metrics
        assert f"tidelog_scrubbed_bytes_total {len(content)}.0" in metrics
