import { join } from 'node:path';
import test from 'ava';
import { folderUntilEnd } from '../support/folder.ts';
import { entrepot } from '../support/in-process.ts';

test('a duration whose end no date can have is refused, and stores nothing that cannot be read again', async (t) => {
  const folder = await folderUntilEnd(t);
  const environment = { ENTREPOT_DATA: join(folder, 'data') };
  const key = join(folder, 'near.key');
  t.is((await entrepot(environment, 'bundle', 'keygen', '--to', key)).code, 0);
  t.is((await entrepot(environment, 'account', 'create', 'other')).code, 0);
  const tooLong = ['99999999999d', '100000000d'];
  for (const time of tooLong) {
    const token = await entrepot(environment, 'token', 'create', '--name', 'ci', '--expires', time);
    t.deepEqual([token.code, token.stderr], [1, 'entrepot: --expires needs a duration such as 12h or 90d.\n'], time);
    const added = await entrepot(environment, 'bundle', 'trust', 'add', `${key}.pub`, '--for', time);
    t.deepEqual([added.code, added.stderr], [1, 'entrepot: --for: expected a duration such as 365d.\n'], time);
    const list = await entrepot(environment, 'bundle', 'trust', 'list');
    t.deepEqual([list.code, list.stdout], [0, ''], time);
  }
  t.is((await entrepot(environment, 'bundle', 'trust', 'add', `${key}.pub`, '--for', '10000000d')).code, 0);
  t.regex((await entrepot(environment, 'bundle', 'trust', 'list')).stdout, /\t\+\d{6}-\d\d-\d\dT/);
});
