import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { clientKinds, clients } from '../../src/clients/client.ts';
import { createAuthority } from '../support/builders/certificates.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { entrepot } from '../support/in-process.ts';
import { comparePrinted } from '../support/printed.ts';

// What `entrepot client` prints for each client is in `client-texts.txt`. After an intended change, write the file again, and read
// what differs:
//   ENTREPOT_TEST_SHOWN=write npm test -- test/cli/client-texts.test.ts

const file = join(import.meta.dirname, 'client-texts.txt');
const https = '--url https://hub.example.com';
const http = '--url http://hub.example.com:8080/';

/** The words of a command. `AUTHORITY` stands for a file with a certificate. */
const lines = clientKinds.flatMap((kind) => [
  `${kind} ${https} --registries docker.io,quay.io`,
  `${kind} ${http} --registries docker.io,registry.corp:5000 --no-credentials --ca-file AUTHORITY${kind === 'dotnet' ? '' : ' --fallback'}`,
  `${kind} ${https} --registries ghcr.io --no-credentials`,
  `${kind} ${https} --registries ghcr.io --form prefix --no-credentials`,
  `${kind} ${http} --registries ghcr.io --form prefix --ca-file AUTHORITY`,
  ...(kind === 'containerd' || kind === 'k3s'
    ? [`${kind} ${https} --registries ghcr.io --form prefix --fallback`]
    : []),
]);

test('the configuration of each client is printed with its files, the steps beside them, and the line of a check', async (t) => {
  const { ca } = createAuthority();
  const authority = join(await folderUntilEnd(t), 'ca.pem');
  await writeFile(authority, ca);
  const pem = ca.trim().split('\n');
  const printed: string[] = [];
  for (const line of lines) {
    const { code, stdout, stderr } = await entrepot({}, 'client', ...line.replace('AUTHORITY', authority).split(' '));
    t.deepEqual([code, stderr], [0, ''], line);
    const indent = /^( *)-----BEGIN/m.exec(stdout)?.[1] ?? '';
    const shown = stdout.replace(pem.map((each) => `${indent}${each}`).join('\n'), `${indent}PEM`);
    printed.push(`$ entrepot client ${line}\n${shown}`);
  }
  for (const kind of clientKinds) printed.push(`${kind}: ${clients[kind].check('hub.example.com/team/app', '1.0')}\n`);
  await comparePrinted(t, file, printed);
});
