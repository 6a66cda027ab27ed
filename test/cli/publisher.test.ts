import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { run } from '../../src/cli/commands.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { entrepot } from '../support/in-process.ts';
import { audience, startIssuer } from '../support/issuer.ts';

test('publisher creates, lists, explains and deletes rules', async (t) => {
  const folder = await folderUntilEnd(t);
  const issuer = await startIssuer(t);
  const file = join(folder, 'settings.yaml');
  const trusted = [
    issuer.trusted(),
    { name: 'azure', kind: 'azure', issuer: 'https://a.example', audience: 'api://AzureADTokenExchange' },
  ];
  await writeFile(file, JSON.stringify({ data: folder, upstreams: [], trustedIssuers: trusted }));
  const environment = { ENTREPOT_CONFIG: file };
  const create = (...words: string[]) => entrepot(environment, 'publisher', 'create', '--name', 'of tags', ...words);
  const claims = ['repository_id=100', 'ref=refs/tags/*', 'ref=a=b', 'x=1'].flatMap((each) => ['--claim', each]);
  const made = await create('--issuer', 'github', ...claims, '--scope', 'read,write', '--packages', 'Contoso.*');
  t.is(made.code, 0, made.stderr);
  const id = made.stdout.trim();
  t.regex(id, /^[0-9a-f-]{36}$/);
  const listed = await entrepot(environment, 'publisher', 'list');
  t.is(listed.stdout, `${id}\tgithub\tread,write\trepository_id=100 ref=refs/tags/*|a=b x=1\tapi\tof tags\n`);

  for (const claim of ['repository_id', '=1']) {
    const wrong = await create('--issuer', 'github', '--claim', claim);
    t.is(wrong.code, 1, claim);
    t.regex(wrong.stderr, /^entrepot: --claim needs a name and a value/, claim);
  }
  const azure = await entrepot(
    environment,
    'publisher',
    'create',
    '--name',
    'b',
    '--issuer',
    'azure',
    '--claim',
    'def_id=1',
  );
  t.regex(azure.stderr, /All tokens of Azure Pipelines/);

  const explain = async (text: string) => {
    let output = '';
    const write = (piece: string) => (output += piece);
    const code = await run(['publisher', 'explain'], environment, {
      stdin: (async function* pieces() {
        yield await Promise.resolve(text);
      })(),
      stdout: { write },
      stderr: { write },
      once: () => {},
      on: () => {},
      exit: () => {},
    });
    return { code, output };
  };
  const explained = await explain(
    `${await issuer.sign({ repository_id: '100', ref: 'refs/heads/main', aud: audience })}\n`,
  );
  t.is(explained.code, 0);
  t.is(
    explained.output,
    'The token of the issuer github is accepted.\nof tags: does not match\n' +
      '  ref is refs/heads/main, but must be refs/tags/* or a=b\n  x is missing, but must be 1\nb: is for another issuer\n',
  );
  t.like(await explain(''), { code: 1, output: 'entrepot: Send the identity token to stdin.\n' });
  t.is((await entrepot(environment, 'publisher', 'delete', id)).code, 0);
  t.is((await entrepot(environment, 'publisher', 'delete', id)).code, 1);
});
