import { spawn } from 'node:child_process';
import { chmod, chown, copyFile, mkdir, readdir, readFile, stat, symlink, writeFile } from 'node:fs/promises';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { folderUntilEnd } from '../support/folder.ts';

const root = join(import.meta.dirname, '../..');
const folderName = `entrepot-setup-${userInfo().uid}`;

/** A checkout without packages, a temporary folder, and an `npm` that notes its call. */
async function checkout(t: ExecutionContext) {
  const folder = await folderUntilEnd(t);
  const [temporary, programs] = [join(folder, 'tmp'), join(folder, 'bin')];
  for (const each of [temporary, programs, join(folder, 'scripts')]) await mkdir(each);
  await copyFile(join(root, 'scripts/setup.mjs'), join(folder, 'scripts/setup.mjs'));
  await writeFile(join(folder, 'package-lock.json'), JSON.stringify({ packages: { '': {} } }));
  await writeFile(join(programs, 'npm'), `#!/bin/sh\nls -A "$TMPDIR"/* > "${folder}/called"\n`, { mode: 0o755 });
  const run = async () => {
    const env = { PATH: `${programs}:${process.env['PATH']}`, TMPDIR: temporary };
    const child = spawn(process.execPath, [join(folder, 'scripts/setup.mjs')], { env });
    let stderr = '';
    child.stderr.on('data', (chunk) => (stderr += String(chunk)));
    const code = await new Promise((resolve) => child.once('close', resolve));
    const called = await readFile(join(folder, 'called'), 'utf8').catch(() => undefined);
    return { code, stderr, called };
  };
  return { run, lockFolder: join(temporary, folderName), temporary };
}

test('setup installs under a lock in a folder that no other user can write to', async (t) => {
  const { run, lockFolder, temporary } = await checkout(t);
  const { code, stderr, called } = await run();
  t.is(code, 0, stderr);
  t.regex(called!, /^[0-9a-f]{16}\n/, 'the lock is held during the install');
  t.deepEqual(await readdir(temporary), [folderName]);
  t.is((await stat(lockFolder)).mode & 0o777, 0o700);
  t.deepEqual(await readdir(lockFolder), [], 'and released');
});

test('setup refuses a lock folder that another user can write to or has made', async (t) => {
  const prepare: ((folder: string) => Promise<void>)[] = [
    async (folder) => {
      await mkdir(folder);
      await chmod(folder, 0o777);
    },
    (folder) => symlink('/', folder),
    (folder) => writeFile(folder, ''),
  ];
  if (userInfo().uid === 0) {
    prepare.push(async (folder) => {
      await mkdir(folder, { mode: 0o700 });
      await chown(folder, 65_534, 65_534);
    });
  }
  for (const each of prepare) {
    const { run, lockFolder } = await checkout(t);
    await each(lockFolder);
    const { code, stderr, called } = await run();
    t.is(code, 1);
    t.regex(stderr, /entrepot-setup-\d+ must be a folder that only you can use; remove it, or set TMPDIR/);
    t.is(called, undefined, 'nothing was installed');
  }
});
