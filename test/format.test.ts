import { join } from 'node:path';
import test from 'ava';
import { execute } from './support/clients/clients.ts';

test('every file has the format of `npm run format`', async (t) => {
  const root = join(import.meta.dirname, '..');
  const { code, stdout, stderr } = await execute(process.execPath, ['node_modules/oxfmt/bin/oxfmt', '--check'], {
    cwd: root,
  });
  t.is(code, 0, `${stdout}${stderr}`);
});
