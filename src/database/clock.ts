import type { Dialect } from './database.ts';

/**
 * SQL of the time of the database, in milliseconds since 1970 UTC. Use it for times that several instances compare, because
 * the clocks of machines may differ.
 */
export const databaseTime: Readonly<Record<Dialect, string>> = {
  sqlite: "CAST(unixepoch('subsec') * 1000 AS INTEGER)",
  mysql: 'CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)',
};
