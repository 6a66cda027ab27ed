import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { personIdOf } from '../../src/accounts/people.ts';
import { emptyPlace } from '../backup/support.ts';
import { entrepot } from '../support/in-process.ts';
import { databaseOf } from '../support/inside.ts';
import { startTestServer } from '../support/server.ts';

const issuer = 'https://id.example.com';

test('the three examples in docs/people.md do what they say', async (t) => {
  const place = await emptyPlace(t, 'sqlite');
  const environment = {
    ...place.environment,
    ENTREPOT_SIGN_IN_OIDC_ISSUER: issuer,
    ENTREPOT_SIGN_IN_OIDC_CLIENT_ID: 'entrepot',
  };
  const run = async (...words: string[]) => {
    const { code, stdout, stderr } = await entrepot(environment, ...words);
    t.is(code, 0, `${words.join(' ')}: ${stderr}`);
    return stdout;
  };
  for (const name of ['platform', 'team-a', 'team-b']) await run('account', 'create', name);
  const server = await startTestServer(t, { data: place.data, database: { url: place.url } });
  const person = { issuer, subject: '248289', name: 'Ann', claims: [] };
  await databaseOf(server).transaction((tx) =>
    tx.insert('people', { id: personIdOf(person), person: JSON.stringify(person), signed_in_at: Date.now() }),
  );
  await run('token', 'create', '--account', 'team-a', '--name', 'of Ann', '--scope', 'read');

  const text = await readFile(join(import.meta.dirname, '../../docs/people.md'), 'utf8');
  const [, examples = ''] = text.split('## Three examples');
  const lines = [...examples.matchAll(/```sh\n([^`]+)```/g)].flatMap(([, block]) => block!.trim().split('\n'));
  t.is(lines.length, 9);
  // What a list shows first stands for ID in the lines after it.
  let id = '';
  for (const line of lines) {
    const [, ...words] = [...line.replace(/ +#.*$/, '').matchAll(/'([^']*)'|(\S+)/g)].map(
      ([, quoted, plain]) => quoted ?? plain!,
    );
    const printed = await run(...words.map((each) => (each === 'ID' ? id : each)));
    if (words[1] === 'list') id = printed.split('\t')[0]!;
  }
  t.regex(await run('grant', 'list', '--account', 'team-a'), /\tplatform\tactive\tread\t/);
  t.regex(await run('grant', 'list', '--account', 'team-b'), /\tplatform\tpending\t/);
  const may = (...words: string[]) => run('access', 'explain', ...words, '--account', 'team-a');
  t.regex(await may('person', '248289', 'write', 'Contoso.Pay.Core', '--kind', 'package'), /disabled here/);
  t.regex(await run('person', 'list'), /disabled everywhere\t248289\tAnn/);
  t.regex(await run('token', 'list', '--account', 'team-a'), /revoked/);
});
