import { ownRedis } from '../support/processes/redis.ts';
import { endServers } from './ended-servers.ts';
import type { Fault } from './fault.ts';
import { privateMariadb } from './private-mariadb.ts';

export const fault: Fault = {
  name: 'SIGTERM while Redis is frozen, MariaDB',
  run: (options) =>
    endServers(options, async (t) => {
      const { databaseUrl } = await privateMariadb(t);
      const redis = await ownRedis(t);
      await redis.start();
      return {
        settings: { ENTREPOT_DATABASE_URL: databaseUrl, ENTREPOT_REDIS_URL: redis.url },
        cause: () => redis.freeze(),
        end: () => redis.thaw(),
      };
    }),
};
