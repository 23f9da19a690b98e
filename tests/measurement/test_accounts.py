"""The accounts of a run: they add up as long as nothing is lost, and any number that is off shows where it is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastream.measurement.accounts import Accounts, Counted, InputAccount, StepAccount, drops_text, read_fault

counts = st.integers(0, 10**9)
off_by = st.integers(-(10**6), 10**6).filter(bool)


@st.composite
def accounts_that_add_up(draw: st.DrawFn) -> Accounts:
    """A source, and up to four steps that each read some of those before them; the last keeps what it reads."""
    out = {"source": draw(counts)}
    steps = [StepAccount(operator="source", records_in=out["source"], records_out=out["source"])]
    for number in range(draw(st.integers(1, 4))):
        producers = draw(st.lists(st.sampled_from(sorted(out)), unique=True, min_size=1))
        reads = {name: draw(st.integers(0, out[name])) for name in producers}
        inputs = tuple(
            InputAccount(producer=name, published=out[name], read=read, waiting=out[name] - read)
            for name, read in reads.items()
        )
        out[f"step{number}"] = draw(counts)
        steps.append(
            StepAccount(
                operator=f"step{number}",
                inputs=inputs,
                records_in=sum(reads.values()),
                records_out=out[f"step{number}"],
            )
        )
    last = steps[-1]
    steps[-1] = replace(last, records_out=last.records_in, must_have_put_out=last.records_in)
    return Accounts(steps=tuple(steps))


class TestTheEquation:
    @given(accounts=accounts_that_add_up())
    def test_nothing_is_said_where_everything_adds_up(self, accounts: Accounts) -> None:
        assert accounts.differences == ()
        for step in accounts.steps[1:]:
            assert step.records_in is not None
            assert step.waiting is not None
            assert step.records_in + step.waiting == sum(one.published for one in step.inputs)

    @given(
        accounts=accounts_that_add_up(),
        number=st.sampled_from(["published", "read", "waiting"]),
        off=off_by,
        data=st.data(),
    )
    def test_any_number_of_an_input_that_is_off_shows_where_it_is(
        self, accounts: Accounts, number: str, off: int, data: st.DataObject
    ) -> None:
        at = data.draw(st.integers(1, len(accounts.steps) - 1))
        step = accounts.steps[at]
        which = data.draw(st.integers(0, len(step.inputs) - 1))
        one = step.inputs[which]
        wrong = replace(one, **{number: getattr(one, number) + off})
        inputs = (*step.inputs[:which], wrong, *step.inputs[which + 1 :])
        steps = (*accounts.steps[:at], replace(step, inputs=inputs), *accounts.steps[at + 1 :])
        (told,) = Accounts(steps=steps).differences
        assert told.startswith(f"{step.operator}: {one.producer} has published ")
        lost = off if number == "published" else -off
        assert told.endswith(
            f"{lost:,} {'is' if lost == 1 else 'are'} missing" if lost > 0 else f"{-lost:,} too many"
        )

    @given(accounts=accounts_that_add_up(), off=off_by)
    def test_a_step_that_passes_everything_on_has_put_out_what_it_took_in(
        self, accounts: Accounts, off: int
    ) -> None:
        last = accounts.steps[-1]
        assert last.records_out is not None
        wrong = replace(last, records_out=last.records_out + off)
        (told,) = Accounts(steps=(*accounts.steps[:-1], wrong)).differences
        assert told.startswith(f"{last.operator}: it took in ")

    def test_a_difference_is_told_with_its_numbers(self) -> None:
        given = InputAccount(producer="words", published=1_000, read=900, waiting=99)
        step = StepAccount(operator="counts", inputs=(given,), records_in=900)
        assert step.differences == (
            "counts: words has published 1,000 records, of which it has read 900 and 99 wait for it: 1 is missing",
        )

    def test_what_cannot_be_compared_is_not(self) -> None:
        """A function of the user's takes its batches: what it puts out is not known."""
        assert StepAccount(operator="show", records_in=3, must_have_put_out=3).differences == ()

    def test_faults_of_batches_are_differences_as_well(self) -> None:
        assert Accounts(steps=(), faults=("words: its batch 3 ...",)).differences == ("words: its batch 3 ...",)


class TestLateRecords:
    def test_they_are_told_with_the_operator_how_many_and_what_to_do(self) -> None:
        (told,) = Accounts(steps=(StepAccount(operator="windows", late=1_234),)).warnings
        assert told.startswith(
            "windows dropped at least 1,234 records as late: raise the delay of its watermark, or"
        )

    def test_what_earlier_runs_dropped_is_told_apart(self) -> None:
        both = StepAccount(operator="windows", late=15, late_before=5)
        (told,) = Accounts(steps=(both,)).warnings
        assert told.startswith("windows dropped at least 10 records as late (and 5 in earlier runs): ")
        assert Accounts(steps=(replace(both, late_before=15),)).warnings == (), "this run has dropped none"

    def test_batches_that_nobody_was_told_of_are_named_once(self) -> None:
        killed = StepAccount(operator="windows", late=0, uncounted_batches=3)
        (told,) = Accounts(steps=(killed,)).warnings
        assert told == (
            "windows: how many records it dropped as late in 3 batches is not known: "
            "a run ended before it was told"
        )
        assert Accounts(steps=(replace(killed, uncounted_before=3),)).warnings == ()
        assert Accounts(steps=(replace(killed, late=None),)).warnings == (), "without event time nothing is late"

    def test_while_it_goes_on_the_same_is_said_in_every_window(self) -> None:
        assert drops_text("windows").startswith(
            "windows drops records as late: raise the delay of its watermark, or"
        )


class TestWhatABatchHasRead:
    @given(offered=counts, times=st.integers(1, 10))
    def test_what_it_was_to_read_is_right_however_it_is_counted(self, offered: int, times: int) -> None:
        for counted in Counted:
            assert read_fault("a", 0, "b", offered=offered, read=offered, counted=counted) is None
        again = {
            counted: read_fault("a", 0, "b", offered=offered, read=offered * times, counted=counted) is None
            for counted in Counted
        }
        once = times == 1 or offered == 0
        assert again == {Counted.ONCE: once, Counted.WHOLE_TIMES: True, Counted.AT_LEAST_ONCE: True}

    @given(offered=st.integers(1, 10**9), read=counts, counted=st.sampled_from(Counted))
    def test_less_is_always_a_fault(self, offered: int, read: int, counted: Counted) -> None:
        if read < offered:
            assert read_fault("a", 0, "b", offered=offered, read=read, counted=counted) is not None

    @pytest.mark.parametrize(
        ("read", "told"), [(90, "and has read 90: 10 were lost"), (130, "and has read 130: 30 were read twice")]
    )
    def test_it_is_told_with_its_numbers(self, read: int, told: str) -> None:
        found = read_fault("counts", 7, "words", offered=100, read=read, counted=Counted.WHOLE_TIMES)
        assert found == f"counts: its batch 7 was to read 100 records of words, {told}"
