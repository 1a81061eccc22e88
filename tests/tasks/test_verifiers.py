"""Only the state that the sentence asks for gets the full reward; close results get 0, or their documented part."""

import os
from pathlib import Path

import pytest

from tasks.families import EASY, FAMILIES, HARD, make
from tasks.folder import write_task
from tasks.verifier import FileState, Holds, IsFile, Level, script
from tasks.words import SPLITS, Split
from tests.tasks.folder_runner import grade, solution

SEEDS = (3, 4)

# $1, $2, ... are the words of the family's one-line solution: for `mv OLD NEW` OLD is $2 and NEW is $3.
# Each line: command, reward by default, reward with partial credit.
RESULTS: dict[str, list[tuple[str, float, float]]] = {
    "mkdir": [
        ("mkdir -p $2/inner", 1, 1),
        ("mkdir x$2", 0, 0),
        ("touch $2", 0, 0),
        ("mkdir other; ln -s other $2", 0, 0),
    ],
    "rename": [
        ("cp $2 $3 && rm $2", 1, 1),
        ("cp $2 $3", 0, 0),
        ("mv $2 x$3", 0, 0),
        ("mv $2 $3; echo >> $3", 0, 0),
        ("mv $2 $3; ln -s $3 $2", 0, 0),
        ("mv $2 real; ln -s real $3", 0, 0),
        ("mv $2 $3; ln -s nowhere $2", 0, 0),
        ("rm $2; touch $3", 0, 0),
    ],
    "copy": [
        ("cat $2 > $3", 1, 1),
        ("mv $2 $3", 0, 0),
        ("ln $2 $3", 0, 0),
        ("ln -s $2 $3", 0, 0),
        ("touch $3", 0, 0),
        ("head -c -1 $2 > $3", 0, 0),
        ("mkdir $3; cp $2 $3/", 0, 0),
    ],
    "move": [
        ("mv $2 $3", 1, 1),
        ("cp $2 $3/", 0, 0),
        ("mv $2 $3/x", 0, 0),
        ("rm -r $3; mv $2 $3", 0, 0),
        ("mv $3 y; ln -s y $3; mv $2 $3/", 0, 0),
        ("rm $2; touch $3/$2", 0, 0),
    ],
    "delete": [
        ("rm -- $2 || true", 1, 1),
        ("rm *", 0, 0),
        ("mv $2 $(ls | grep -v $2)", 0, 0),
        ("rm $2; echo x >> $(ls)", 0, 0),
        ("rm $2; ln -s nowhere $2", 0, 0),
        (": > $2", 0, 0),
    ],
    "chmod": [
        ("chmod 777 $3", 1, 1),
        ("chmod 755 $3", 1, 1),
        ("chmod a-x $3", 0, 0),
        ("chmod go+x $3", 0, 0),
        ("chmod +x $3; echo x >> $3", 0, 0),
        ("cp $3 y; chmod +x y; rm $3; ln -s y $3", 0, 0),
    ],
    "mkdirs": [
        ("mkdir ${3%%/*} && mkdir $3", 1, 1),
        ("mkdir -p ${3%%/*}", 0, 0.5),
        ("mkdir -p ${3##*/}/${3%%/*}", 0, 0),
        ("mkdir ${3%%/*} ${3##*/}", 0, 0.5),
        ("mkdir ${3%%/*}; touch $3", 0, 0.5),
    ],
    "write": [
        ("printf $2 > $4", 1, 1),
        ("echo $2 $2 > $4", 0, 0.2),
        ("echo ' '$2 > $4", 0, 0.2),
        ("printf '%s\\n\\n' $2 > $4", 0, 0.2),
        ("printf '%s\\0' $2 > $4", 0, 0.2),
        ("touch $4", 0, 0.2),
        ("mkdir $4", 0, 0),
        ("echo $2 > x; ln -s x $4", 0, 0),
    ],
    "append": [
        ("printf $2 >> $4", 1, 1),
        ("echo $2 > $4", 0, 0),
        ("echo $2 $2 >> $4", 0, 0.3),
        ("echo >> $4; echo $2 >> $4", 0, 0.3),
        ("sed -i 1i$2 $4", 0, 0),
        ("true", 0, 0),
    ],
    "delext": [
        ("rm -f *${2#?}", 1, 1),
        ("rm *", 0, 0),
        ("rm $(ls *${2#?} | head -1)", 0, 0.5),
        ("rm $(ls *${2#?} | tail -1)", 0, 0.5),
        ("rm $(ls *${2#?} | head -1) *.txt", 0, 0),
        ("rm *${2#?}; echo x >> *.txt", 0, 0),
        ("mv $(ls *${2#?} | head -1) *.txt; rm *${2#?}", 0, 0),
    ],
    "count": [
        ("wc -l $4 > $6", 1, 1),
        ("printf $(wc -l < $4) > $6", 1, 1),
        ("wc $4 > $6", 0, 0.3),
        ("wc < $4 > $6", 0, 0.3),
        ("wc -w $4 > $6", 0, 0.3),
        ("wc -c < $4 > $6", 0, 0.3),
        ("echo 1 > $6", 0, 0),
        ("wc -l < $4 > x; mv x $4; cp $4 $6", 0, 0),
        ("wc -l < $4 > $6; wc -l < $4 >> $6", 0, 0),
    ],
    "sort": [
        ("LC_ALL=C sort $3 | cat > $5", 1, 1),
        ("cp $3 $5", 0, 0.2),
        ("LC_ALL=C sort -r $3 > $5", 0, 0.5),
        ("LC_ALL=C sort -o $3 $3; cp $3 $5", 0, 0),
        ("LC_ALL=C sort $3 | head -c -1 > $5", 0, 0),
        ("LC_ALL=C sort $3", 0, 0),
    ],
    "head": [
        ("sed -n 1,$3p $4 > $6", 1, 1),
        ("head -n $(($3 + 1)) $4 > $6", 0, 0.5),
        ("head $4 > $6", 0, 0.5),
        ("tail -n $3 $4 > $6", 0, 0),
        ("head -n $3 $4 > x; mv x $4; cp $4 $6", 0, 0),
        ("touch $6", 0, 0),
    ],
    "grep": [
        ("sed -n /$2/p $3 > $5", 1, 1),
        ("grep -n $2 $3 > $5", 0, 0.5),
        ("grep -H $2 $3 > $5", 0, 0.5),
        ("grep -v $2 $3 > $5", 0, 0.2),
        ("grep -c $2 $3 > $5", 0, 0.2),
        ("cp $3 $5", 0, 0.2),
        ("grep x$2 $3 > $5", 0, 0),
        ("grep $2 $3 > x; mv x $3; cp $3 $5", 0, 0),
    ],
    "replace": [
        ('w=${3#s/}; perl -pi -e "s/${w%%/*}/XYZ/g" $4', 1, 1),
        ('w=${3#s/}; echo ${w%%/*} >> $4; sed -i "s/${w%%/*}/XYZ/g" $4', 0, 0),
        ('w=${3#s/}; sed -i "s/${w%%/*}/xyz/g" $4', 0, 0.5),
        ('w=${3#s/}; sed "s/${w%%/*}/XYZ/g" $4 > other', 0, 0),
        ('w=${3#s/}; sed -i "/${w%%/*}/d" $4', 0, 0),
        ("echo XYZ > $4", 0, 0),
    ],
    "concat": [
        ("cp $2 $5; cat $3 >> $5", 1, 1),
        ("cat $3 $2 > $5", 0, 0.5),
        ("cp $2 $5", 0, 0.3),
        ("cp $3 $5", 0, 0.3),
        ("cat $2 $3 > $5; rm $2", 0, 0),
        ("cat $3 >> $2; mv $2 $5", 0, 0),
    ],
}


@pytest.mark.parametrize("partial_credit", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_near_misses_get_no_full_reward(family: str, partial_credit: bool, tmp_path: Path) -> None:
    for seed in SEEDS:
        instance_id = write_task(tmp_path, family, "train", seed, partial_credit=partial_credit)
        words = make(family, "train", seed).solution.removeprefix("LC_ALL=C ")
        offset = 1 if family == "sort" else 0
        arguments = " ".join(f"'{word}'" for word in [""] * offset + words.split())
        for number, (command, plain, partial) in enumerate(RESULTS[family]):
            scratch = tmp_path / f"{seed}-{number}"
            reward = grade(tmp_path / instance_id, scratch, f"set -- {arguments}; {command}")
            assert reward == (partial if partial_credit else plain), (instance_id, command, os.listdir(scratch / "app"))


@pytest.mark.parametrize("partial_credit", [False, True])
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_solution_gets_one_and_doing_nothing_gets_zero(
    family: str, split: Split, partial_credit: bool, tmp_path: Path
) -> None:
    for seed in (1,):
        task = tmp_path / write_task(tmp_path, family, split, seed, partial_credit=partial_credit)
        assert grade(task, tmp_path / f"solved-{seed}", solution(task)) == 1
        assert grade(task, tmp_path / f"untouched-{seed}", None) == 0


def levels(family: str, partial_credit: bool) -> tuple[Level, ...]:
    verifier = make(family, "train", 0).verifier
    assert isinstance(verifier, FileState)
    return verifier.levels(partial_credit)


def test_partial_credit_never_reaches_the_full_reward_and_easy_families_give_none() -> None:
    for family in FAMILIES:
        rewards = [level.reward for level in levels(family, True)]
        assert rewards[0] == 1 and all(0 < reward <= 0.5 for reward in rewards[1:])
        assert (len(rewards) > 1) == (family in HARD)
        assert len(levels(family, False)) == 1
    assert set(EASY).isdisjoint(HARD)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_result_without_the_working_directory_gets_zero(family: str, tmp_path: Path) -> None:
    task = tmp_path / write_task(tmp_path, family, "train", 0, partial_credit=True)
    assert grade(task, tmp_path / "scratch", "rm -rf /app") == 0


AWKWARD = ["", "plain\n", 'it\'s $HOME `id` $(id) "q" \\n', "tab\there", "trailing\n\n", "ä € \x01\x7f\xff", "-n", "!x"]


@pytest.mark.parametrize("content", AWKWARD)
def test_the_script_compares_exact_bytes(content: str, tmp_path: Path) -> None:
    task = _task_that_wants(tmp_path, content)
    exact = content.encode()
    near = [exact + b"\n", exact + b"\0", b"\0" + exact, exact + b" ", exact + b"\x01", b" " + exact, exact + b"\0x"]
    if exact:
        near += [exact[:-1], exact[:-1] + b"\0", b"", exact + exact]
    for number, data in enumerate([exact, *near]):
        (tmp_path / "data").write_bytes(data)
        reward = grade(task, tmp_path / str(number), f"cp {tmp_path}/data f")
        assert reward == (1 if data == exact else 0), data


def test_a_content_that_bash_cannot_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="NUL"):
        script((Level(1, (Holds("f", ("a\0b",)),)),))


@pytest.mark.parametrize("rewards", [(), (0.5,), (1, 0), (1, 0.2, 0.5)])
def test_levels_that_do_not_go_down_from_one_are_refused(rewards: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="levels"):
        script(tuple(Level(reward, (IsFile("f"),)) for reward in rewards))


def test_a_huge_result_is_graded_at_once(tmp_path: Path) -> None:
    task = _task_that_wants(tmp_path, "word\n")
    assert grade(task, tmp_path / "scratch", "truncate -s 20G f") == 0


def _task_that_wants(root: Path, content: str) -> Path:
    task = root / "task"
    (task / "tests").mkdir(parents=True)
    (task / "environment").mkdir()
    (task / "environment" / "Dockerfile").write_text("FROM ubuntu:24.04\nWORKDIR /app\n")
    (task / "tests" / "test.sh").write_text(script((Level(1, (Holds("f", (content,)),)),)))
    return task
