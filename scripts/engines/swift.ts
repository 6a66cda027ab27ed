import { existsSync } from 'node:fs';
import { rename } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { CreateBucketCommand, S3Client } from '@aws-sdk/client-s3';
import { settings } from '../../test/faults/pushes.ts';
import { Teardown } from '../../test/faults/teardown.ts';
import { temporaryFolder } from '../../test/support/clients/clients.ts';
import { ownMariadb } from '../../test/support/processes/mariadb.ts';
import { createDatabase } from '../../test/support/processes/services.ts';
import { startSwift, swiftCommands } from '../../test/support/processes/swift.ts';
import { findCommand } from '../packages.ts';
import { startTraffic, table } from './traffic.ts';

// Two servers with MariaDB and with a bucket of OpenStack Swift on three devices, of which one is lost under pushes and
// pulls. Debian packages: swift swift-proxy swift-account swift-container swift-object memcached mariadb-server

/** Milliseconds of pushes before a device is lost, and after it. */
const [before, after] = [5000, 15_000];
const copies = 3;
const bucket = 'entrepot';

async function main(): Promise<void> {
  if (['mariadbd', 'mariadb-install-db'].some((name) => findCommand(name) === undefined))
    throw new Error('install the Debian package mariadb-server');
  await using t = new Teardown();
  const swift = await startSwift(copies);
  if (!swift) throw new Error(`install the Debian packages ${[...new Set(Object.values(swiftCommands))].join(', ')}`);
  t.teardown(() => swift.stop());
  const folder = await temporaryFolder();
  t.teardown(() => folder.remove());
  const mariadb = await ownMariadb(`${folder.path}/mariadb`);
  t.teardown(() => mariadb.stop());
  const database = await createDatabase(mariadb.url);
  const { endpoint, region, accessKeyId, secretAccessKey } = swift;
  const client = new S3Client({
    endpoint,
    region,
    forcePathStyle: true,
    credentials: { accessKeyId, secretAccessKey },
  });
  await client.send(new CreateBucketCommand({ Bucket: bucket }));
  client.destroy();
  console.error('Swift and MariaDB are ready');

  const environment = {
    ...settings,
    ENTREPOT_DATABASE_URL: database.url,
    ENTREPOT_STORAGE_DRIVER: 's3',
    // Every read comes from Swift.
    ENTREPOT_STORAGE_CACHE: '0',
    ENTREPOT_STORAGE_S3_ENDPOINT: endpoint,
    ENTREPOT_STORAGE_S3_REGION: region,
    ENTREPOT_STORAGE_S3_BUCKET: bucket,
    ENTREPOT_STORAGE_S3_FORCE_PATH_STYLE: 'true',
    ENTREPOT_STORAGE_S3_ACCESS_KEY_ID: accessKeyId,
    ENTREPOT_STORAGE_S3_SECRET_ACCESS_KEY: secretAccessKey,
  };
  const { servers, traffic } = await startTraffic(t, folder.path, environment);
  await sleep(before);
  const pushedBefore = traffic.pushes.acknowledged;
  const [lost] = swift.devices;
  await rename(lost!, `${lost}-lost`);
  await sleep(after);
  const figures = await traffic.stop();
  if (existsSync(lost!)) throw new Error('Swift has made the lost device anew');
  console.log(
    table(`Swift, ${copies} copies on ${copies} devices, one device removed`, figures, [
      ['pushes before the loss', String(pushedBefore)],
    ]),
  );
  for (const defect of figures.defects) console.error(defect);
  if (process.argv.includes('--log')) for (const server of servers) console.error(server.log());
}

await main();
