import { X509Certificate } from 'node:crypto';
import { readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { folderUntilEnd } from '../support/folder.ts';
import { entrepot } from '../support/in-process.ts';
import { startTestServer } from '../support/server.ts';
import { connectTls } from '../support/tls.ts';

test('cert makes a certificate that clients verify by name and address, with a private key of its owner only', async (t) => {
  const out = join(await folderUntilEnd(t), 'new', 'certificates');
  const hosts = ['hub.example.test', '*.team.test', '192.0.2.7', '2001:db8::7:0:1', '::ffff:192.0.2.8'];
  const made = await entrepot({}, 'cert', '--self-signed', '--host', ...hosts, '--out', out);
  t.is(made.code, 0, made.stderr);
  t.deepEqual((await readdir(out)).sort(), ['ca.crt', 'server.crt', 'server.key']);
  const tls = { certFile: join(out, 'server.crt'), keyFile: join(out, 'server.key') };
  t.is((await stat(tls.keyFile)).mode & 0o777, 0o600);
  t.true(made.stdout.includes(`ENTREPOT_TLS_KEY_FILE=${tls.keyFile}\n`));
  t.false(made.stdout.includes('PRIVATE'));

  const ca = await readFile(join(out, 'ca.crt'), 'utf8');
  const leaf = new X509Certificate(await readFile(tls.certFile));
  t.true(leaf.verify(new X509Certificate(ca).publicKey));
  t.is(leaf.ca, false);
  for (const name of ['hub.example.test', 'a.team.test', 'localhost'])
    t.is(leaf.checkHost(name) === undefined, false, name);
  for (const address of ['192.0.2.7', '2001:db8::7:0:1', '127.0.0.1', '::1', '::ffff:192.0.2.8'])
    t.is(leaf.checkIP(address), address);
  const days = (leaf.validToDate.getTime() - Date.now()) / 86_400_000;
  t.true(days > 364.9 && days <= 365);

  const server = await startTestServer(t, { server: { tls } });
  const pair = { authority: { ca } } as Parameters<typeof connectTls>[1];
  for (const servername of ['hub.example.test', 'localhost']) {
    const socket = await connectTls(server.url, pair, { servername });
    t.true(socket.authorized);
    socket.destroy();
  }
  await t.throwsAsync(connectTls(server.url, pair, { servername: 'other.test' }), {
    code: 'ERR_TLS_CERT_ALTNAME_INVALID',
  });
});

test('cert says how other machines reach the server, if it listens for this one only', async (t) => {
  const folder = await folderUntilEnd(t);
  let count = 0;
  const said = async (environment: Record<string, string>, ...words: string[]) =>
    (await entrepot(environment, 'cert', '--self-signed', '--out', join(folder, `${(count += 1)}`), ...words)).stdout;
  const hub = ['--host', 'hub.example.test'];
  t.regex(await said({}, ...hub), /export ENTREPOT_TLS_KEY_FILE=\S+\n {2}export ENTREPOT_HOST=0\.0\.0\.0 /);
  t.regex(await said({ ENTREPOT_HOST: '::1' }, ...hub), /ENTREPOT_HOST/);
  for (const host of ['0.0.0.0', '::', '192.0.2.7'])
    t.notRegex(await said({ ENTREPOT_HOST: host }, ...hub), /ENTREPOT_HOST/, host);
  for (const host of ['localhost', '127.0.0.1', '::1'])
    t.notRegex(await said({}, '--host', host), /ENTREPOT_HOST/, host);
});

test('cert replaces no file, and leaves none when one exists', async (t) => {
  const out = await folderUntilEnd(t);
  await writeFile(join(out, 'ca.crt'), 'mine');
  const { code, stdout, stderr } = await entrepot({}, 'cert', '--self-signed', '--out', out);
  t.is(code, 1);
  t.is(stdout, '');
  t.is(stderr, `entrepot: --out: ${out} has a certificate already; delete it, or use another folder\n`);
  t.deepEqual(await readdir(out), ['ca.crt']);
  t.is(await readFile(join(out, 'ca.crt'), 'utf8'), 'mine');
});

test('cert refuses what is not a host, and a call without --self-signed', async (t) => {
  const out = await folderUntilEnd(t);
  // `cafe:8443` has the characters of an IPv6 address.
  const wrong = ['a b', 'https://hub.test', 'hub.test:8080', 'cafe:8443', '*.::1', '300.1.1.1', 'fe80::1%eth0'];
  for (const host of [...wrong, '', 'a$(id)', "a'b"]) {
    const { code, stderr } = await entrepot({}, 'cert', '--self-signed', '--out', out, `--host=${host}`);
    t.is(code, 1, host);
    t.regex(stderr, /^entrepot: --host: ".*" is not a DNS name or an IP address\n$/);
  }
  const many = Array.from({ length: 100 }, (_, index) => `host-${index}.test`);
  const { stderr } = await entrepot({}, 'cert', '--self-signed', '--out', out, '--host', ...many);
  t.is(stderr, 'entrepot: --host: use at most 100 names\n');
  t.regex((await entrepot({}, 'cert')).stderr, /--self-signed/);
  t.deepEqual(await readdir(out), []);
});
