import { createDatabase, redisUrl } from '../support/processes/services.ts';
import type { Fault } from './fault.ts';
import { killServers } from './killed-servers.ts';

export const fault: Fault = {
  name: 'kill -9 of one of two instances, MariaDB and Redis',
  run: async ({ tries }) => {
    const database = await createDatabase();
    try {
      return await killServers(tries, 2, { ENTREPOT_DATABASE_URL: database.url, ENTREPOT_REDIS_URL: redisUrl() });
    } finally {
      await database.drop();
    }
  },
};
