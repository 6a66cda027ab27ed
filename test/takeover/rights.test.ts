import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { readRights } from '../../src/takeover/adopted-rights.ts';
import { folderUntilEnd } from '../support/folder.ts';

test('the lines of a file of rights', async (t) => {
  const file = join(await folderUntilEnd(t), 'rights');
  const rights = async (text: string, kind = 'nuget') => {
    await writeFile(file, text);
    return readRights(file, 'rightsFile', kind).map(({ patterns, ...right }) => ({
      ...right,
      patterns: patterns && Object.entries(patterns).filter(([, each]) => each !== null),
    }));
  };
  const lines =
    '# old\n\n  user  alice\tread,write \r\nkey ci delete KEY\nkey two read K Contoso.*,Fabrikam\n  # end\n';
  t.deepEqual(await rights(lines), [
    { kind: 'user', name: 'alice', scopes: ['read', 'write'], patterns: null },
    { kind: 'key', name: 'ci', scopes: ['delete'], key: 'KEY', patterns: null },
    { kind: 'key', name: 'two', scopes: ['read'], key: 'K', patterns: [['packages', ['Contoso.*', 'Fabrikam']]] },
  ]);
  t.deepEqual(await rights('user bob read team/*', 'registry'), [
    { kind: 'user', name: 'bob', scopes: ['read'], patterns: [['containers', ['team/*']]] },
  ]);
  t.is((await rights(`${'#\n'.repeat(999)}user a read`)).length, 1);
  const forms = /^rightsFile: line 2 of .*: expected "user NAME SCOPES" or "key NAME SCOPES KEY", and name patterns/;
  const scopes = /^rightsFile: line 2 of .*: expected scopes of read, write, delete, with commas and without spaces$/;
  for (const [line, message] of [
    ['user alice', scopes],
    ['user', scopes],
    ['user alice read,admin', scopes],
    ['user alice read,', scopes],
    ['user alice *', scopes],
    ['other alice read', forms],
    ['other alice read KEY', forms],
    ['key ci read', forms],
    ['key ci read KEY a* b*', forms],
    ['user alice read a* b*', forms],
    ['user alice read a*,', /^rightsFile: line 2 of .*: expected name patterns such as Contoso/],
  ] as const)
    await t.throwsAsync(rights(`#\n${line}\n`), { name: 'ConfigError', message }, line);
  await t.throwsAsync(rights(`${'#\n'.repeat(1000)}user a read`), {
    message: /^rightsFile: .* has more than 1000 lines$/,
  });
});
