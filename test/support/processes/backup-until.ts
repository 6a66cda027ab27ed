import { pino } from 'pino';
import { backUp, type BackupTarget } from '../../../src/backup/backup.ts';
import { openFolder, readFolder } from '../../../src/backup/folder.ts';
import { restore } from '../../../src/backup/restore.ts';
import { loadConfig } from '../../../src/config/load.ts';
import { folderStorage, openRestoreTarget } from '../../../src/server/place.ts';
import { openInstallation } from '../../../src/server/installation.ts';

// Runs a backup to a folder, or a restore from it, up to a step, and waits there to be killed: backup|restore FOLDER STEP.
// Writes a line when it waits.

const [command = '', path = '', step = ''] = process.argv.slice(2);
const folder = { path, ...folderStorage(path) };
const config = loadConfig(process.env);
const surroundings = { log: pino({ level: 'silent' }), now: Date.now, proxy: {} };

async function stopAt(name: string): Promise<void> {
  if (name !== step) return;
  process.stdout.write('waits\n');
  await new Promise(() => setInterval(() => undefined, 1000));
}

if (command === 'backup') {
  const { core, references } = await openInstallation(config, surroundings);
  const real = await openFolder(folder, true);
  let blobs = 0;
  const target: BackupTarget = {
    begin: (state, installation) => real.begin(state, installation),
    putRows: (table, file) => real.putRows(table, file),
    has: (blob) => real.has(blob),
    isSound: (blob, throttle) => real.isSound(blob, throttle),
    putBlob: async (blob, pieces, isSound) => {
      await real.putBlob(blob, pieces, isSound);
      blobs += 1;
      await stopAt(`blob ${blobs}`);
    },
    putMissing: (bytes) => real.putMissing(bytes),
    finish: async (manifest, named) => {
      await stopAt('finish');
      await real.finish(manifest, async function* () {
        await stopAt('named');
        yield* named();
      });
    },
    [Symbol.asyncDispose]: () => real[Symbol.asyncDispose](),
  };
  await backUp({ ...core, references }, target, { mirrored: true, rate: 2 ** 40, onRows: () => stopAt('rows') });
} else {
  const place = await openRestoreTarget(config, surroundings);
  let steps = 0;
  await restore(place, readFolder(folder), { onStep: () => stopAt(`step ${steps++}`) });
  await stopAt('end');
}
