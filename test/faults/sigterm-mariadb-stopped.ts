import { endServers } from './ended-servers.ts';
import type { Fault } from './fault.ts';
import { privateMariadb } from './private-mariadb.ts';

export const fault: Fault = {
  name: 'SIGTERM while MariaDB is stopped',
  run: (options) =>
    endServers(options, async (t) => {
      const { mariadb, databaseUrl } = await privateMariadb(t);
      return {
        settings: { ENTREPOT_DATABASE_URL: databaseUrl },
        cause: () => mariadb.stop(),
        end: () => mariadb.start(),
      };
    }),
};
