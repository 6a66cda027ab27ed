import { openDatabase } from '../../../src/database/database.ts';
import { Collector } from '../../../src/storage/upkeep/collector.ts';
import { FilesystemDriver } from '../../../src/storage/drivers/filesystem.ts';
import { Paths } from '../../../src/storage/files/paths.ts';
import { quickTimes, references } from '../store.ts';

// Collects garbage without a grace until it is killed. Writes a line for every blob that it has removed.

const [url = '', data = ''] = process.argv.slice(2);
const collector = new Collector(await openDatabase(url), new FilesystemDriver(new Paths(data)), references, quickTimes);
for (;;) {
  const { blobs } = await collector.collect({ before: Number.MAX_SAFE_INTEGER });
  if (blobs > 0) process.stdout.write(`${blobs}\n`);
}
