import { endServers } from './ended-servers.ts';
import type { Fault } from './fault.ts';
import { privateMariadb } from './private-mariadb.ts';

export const fault: Fault = {
  name: 'SIGTERM while MariaDB is frozen, with pushes under way',
  run: (options) =>
    endServers(options, async (t) => {
      const { mariadb, databaseUrl } = await privateMariadb(t);
      return {
        settings: { ENTREPOT_DATABASE_URL: databaseUrl },
        cause: (server, pushes) => {
          mariadb.freeze();
          for (let each = 0; each < 10; each += 1) pushes.attempt(server.url).catch(() => undefined);
          return 10;
        },
        end: () => mariadb.thaw(),
      };
    }),
};
