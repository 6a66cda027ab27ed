import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { folderUntilEnd } from '../support/folder.ts';
import { createDatabase, redisUrl } from '../support/processes/services.ts';
import { s3Environment, startS3 } from '../support/s3.ts';
import type { Fault } from './fault.ts';
import { killServers } from './killed-servers.ts';
import { Teardown } from './teardown.ts';

export const fault: Fault = {
  name: 'kill -9 of one of two instances with folders of their own, S3, uploads relayed',
  run: async ({ tries }) => {
    await using t = new Teardown();
    const database = await createDatabase();
    t.teardown(() => database.drop());
    const secret = join(await folderUntilEnd(t), 'secret');
    await writeFile(secret, 'the secret of the instances of a fault\n');
    const settings = {
      ENTREPOT_DATABASE_URL: database.url,
      ENTREPOT_REDIS_URL: redisUrl(),
      ENTREPOT_INTERNAL_HOST: '127.0.0.1',
      ENTREPOT_INTERNAL_PORT: '0',
      ENTREPOT_INTERNAL_SECRET_FILE: secret,
      ...s3Environment(await startS3(t)),
    };
    return await killServers(tries, 2, settings, true);
  },
};
