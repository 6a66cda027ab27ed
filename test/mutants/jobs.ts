import { mutantsOf } from './mutant.ts';

export const jobs = [
  ...mutantsOf(
    'src/jobs/schedule.ts',
    ['test/jobs/schedule.test.ts'],
    [['schedules are in the time zone of the machine', "{ timezone: 'UTC' }", '{}']],
  ),
  ...mutantsOf(
    'src/jobs/table.ts',
    ['test/jobs/upkeep.test.ts'],
    [['gc.grace is ignored', 'now() - config.gc.grace', 'now()']],
  ),
];
