import { execFile } from 'node:child_process';
import { mkdir, symlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import test from 'ava';
import { folderUntilEnd } from '../support/folder.ts';

test('a message names a command as it is typed where the program is installed', async (t) => {
  const folder = await folderUntilEnd(t);
  const root = join(import.meta.dirname, '../..');
  const env = { PATH: process.env['PATH'], ENTREPOT_DATA: join(folder, 'data'), ENTREPOT_UPSTREAMS: '[]' };
  const run = (file: string, ...words: string[]) => promisify(execFile)(process.execPath, [file, ...words], { env });
  await run(join(root, 'bin/entrepot.js'), 'account', 'create', 'team');
  const linked = async (path: string) => {
    const file = join(folder, path);
    await mkdir(dirname(file), { recursive: true });
    await symlink(join(root, 'bin/entrepot.js'), file);
    return file;
  };
  const programs = [
    [await linked('bin/entrepot'), 'entrepot'],
    [await linked('node_modules/.bin/entrepot'), 'npx --no-install entrepot'],
    [join(root, 'bin/entrepot.js'), 'npx --no-install entrepot'],
  ] as const;
  for (const [file, typed] of programs) {
    const error = await t.throwsAsync<Error & { stderr: string }>(run(file, 'token', 'list', '--account', 'none'));
    t.is(error.stderr, `entrepot: There is no account "none". "${typed} account list" shows all accounts.\n`, file);
  }
});
