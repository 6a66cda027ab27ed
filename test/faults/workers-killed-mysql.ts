import { createDatabase } from '../support/processes/services.ts';
import type { Fault } from './fault.ts';
import { settings } from './pushes.ts';
import { Teardown } from './teardown.ts';
import { killWorkers } from './workers-killed.ts';

export const fault: Fault = {
  name: 'kill -9 of all workers at once, MariaDB and Redis',
  run: async (options) => {
    await using t = new Teardown();
    const database = await createDatabase();
    t.teardown(() => database.drop());
    return await killWorkers(t, options, { ...settings, ENTREPOT_DATABASE_URL: database.url });
  },
};
