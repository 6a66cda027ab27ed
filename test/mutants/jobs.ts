import { mutantsOf } from './mutant.ts';

export const jobs = [
  ...mutantsOf(
    'src/jobs/table.ts',
    ['test/jobs/upkeep.test.ts'],
    [['gc.grace is ignored', 'now - config.gc.grace', 'now']],
  ),

  ...mutantsOf(
    'src/jobs/jobs.ts',
    ['test/jobs/jobs.test.ts'],
    [
      ['a run is lost at the second look', '>= this.#lease;\n    this.#seen', '>= 0;\n    this.#seen'],
      [
        'a job without a dry run has one',
        'if (dryRun && !job.canDryRun) throw',
        'if (dryRun && job.canDryRun === undefined) throw',
        'test/cli/jobs.test.ts',
      ],
      ['a closing instance waits for its runs', 'for (const each of this.#active.values()) each.interrupt();', ''],
      [
        'runs of dead instances are not taken over',
        '|| !(await this.#isLost(held))) continue;',
        '|| !(await this.#isLost(held)) || held.beat >= 0) continue;',
      ],
    ],
  ),
  ...mutantsOf(
    'src/jobs/runs.ts',
    ['test/jobs/jobs.test.ts'],
    [
      [
        'a run that kills its instances is started for ever',
        '>= attempts) return undefined;',
        '>= attempts * 1000) return undefined;',
      ],
      ['runs of one job overlap', "if (row.run_id !== null) return 'held';", ''],
      ['a run that was taken over ends its successor', 'if (current !== runId) return;', ''],
      ['an interrupted run is not started again', "if (outcome !== 'interrupted') await", 'await'],
      ['a due time runs twice', "> 0) return 'past';", "> 1) return 'past';"],
    ],
  ),
  ...mutantsOf(
    'src/jobs/active-run.ts',
    ['test/jobs/active-run.test.ts'],
    [
      [
        'a run that was taken over goes on',
        "else this.#controller.abort(new Error('another instance has taken over this run'));",
        '',
        'test/jobs/jobs.test.ts',
      ],
      [
        'a run without a database goes on',
        'if (performance.now() - this.#lastBeatAt >= lease)',
        'if (performance.now() - this.#lastBeatAt < 0)',
      ],
      ['an outcome that was not recorded is lost', 'if (attempt === 10) throw failure;', 'throw failure;'],
    ],
  ),
];
