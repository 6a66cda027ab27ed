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

test('a time without its unit is refused, and is no date of long ago', async (t) => {
  const folder = await folderUntilEnd(t);
  const environment = { ENTREPOT_DATA: join(folder, 'data'), ENTREPOT_UPSTREAMS: '[]' };
  t.is((await entrepot(environment, 'account', 'create', 'other')).code, 0);
  for (const time of ['7', '30', '7 d', '1w', '2027', '1/2/2027', 'May 2027', '2027-13-01', '2027-01-31T25:00Z']) {
    for (const words of [
      ['audit', '--since'],
      ['exposed', 'Lib@1.0.0', '--since'],
      ['export', 'feed', 'http://127.0.0.1:9/v3/index.json', '--since'],
      ['webhook', 'redeliver', 'none', '--since'],
    ]) {
      const { code, stderr } = await entrepot(environment, ...words, time);
      t.is(code, 1, words.join(' '));
      t.regex(stderr, /^entrepot: --since needs a time such as 2027-01-31T12:00:00Z, or a duration such as 1d\.\n/);
    }
    const { stderr } = await entrepot(environment, 'explain', 'Lib', '1.0.0', '--at', time);
    t.is(stderr, 'entrepot: --at: expected a time such as 2027-01-31T12:00:00Z.\n');
  }
  for (const time of [
    '2027-01-31',
    '2027-01-31T12:00',
    ' 2027-01-31T12:00Z ',
    '2027-01-31 12:00:00',
    '2027-01-31T12:00:00.5+01:00',
    '7d',
    '1.5h',
  ])
    t.is((await entrepot(environment, 'audit', '--since', time)).code, 0, time);
});
