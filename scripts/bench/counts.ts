import { createClient } from '@redis/client';
import { createConnection } from 'mysql2/promise';

/** What all servers of this run have asked for so far. */
export interface EngineCounts {
  /** Statements of MariaDB. */
  statements: number;
  /** Commands of Redis. */
  commands: number;
}

/** EngineCounts at MariaDB and Redis themselves. Each reading is a statement and a command too. */
export async function openCounts(
  databaseUrl: string,
  redisUrl: string,
): Promise<{ read(): Promise<EngineCounts>; close(): Promise<void> }> {
  const database = await createConnection(databaseUrl);
  const redis = createClient({ url: redisUrl });
  await redis.connect();
  return {
    read: async () => {
      const [rows] = await database.query("SHOW GLOBAL STATUS LIKE 'Questions'");
      const commands = /total_commands_processed:(\d+)/.exec(await redis.info('stats'))![1];
      return { statements: Number((rows as { Value: string }[])[0]!.Value), commands: Number(commands) };
    },
    close: async () => {
      redis.destroy();
      await database.end();
    },
  };
}
