import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { execute, requiredCommand } from '../../test/support/clients/clients.ts';
import { freePort } from '../../test/support/processes/services.ts';
import { startPeer, type Peer } from './processes.ts';

const main = join(import.meta.dirname, '../../bin/entrepot.js');

export interface Entrepot extends Peer {
  /** A token with all scopes. */
  token: string;
}

/** This server as users run it, with authentication and access log. */
export async function startEntrepot(
  folder: string,
  settings: Record<string, string> = {},
  name = 'entrepot',
): Promise<Entrepot> {
  const port = await freePort();
  await mkdir(folder, { recursive: true });
  const env = {
    PATH: process.env['PATH'],
    ENTREPOT_DATA: folder,
    ENTREPOT_PORT: String(port),
    ENTREPOT_UPSTREAMS: '[]',
    // One token has the load of many clients.
    ENTREPOT_LIMITS_SEARCHES_PER_MINUTE: 'off',
    ENTREPOT_LIMITS_PUSHES_PER_MINUTE: 'off',
    ENTREPOT_LIMITS_MISSES_PER_MINUTE: 'off',
    ...settings,
  };
  const scopes = 'read,write,delete,admin,operate';
  const made = await execute(process.execPath, [main, 'token', 'create', '--name', 'bench', '--scope', scopes], {
    env,
  });
  if (made.code !== 0) throw new Error(made.stderr);
  const url = `http://127.0.0.1:${port}`;
  const token = made.stdout.trim();
  const headers = { Authorization: `Bearer ${token}` };
  const options = { url, probe: `${url}/readyz`, headers, env };
  return { ...(await startPeer(name, main, ['serve'], options)), token };
}

/** A bucket for docker-registry. */
interface BucketSettings {
  endpoint: string;
  bucket: string;
  region: string;
  accessKeyId: string;
  secretAccessKey: string;
}

/**
 * docker-registry with the filesystem driver, or with `s3`, an in-memory cache of descriptors and no authentication; with
 * `log`, it writes a line for each request to this file.
 */
export async function startDockerRegistry(
  folder: string,
  { proxied, log, s3 }: { proxied?: string; log?: string; s3?: BucketSettings } = {},
): Promise<Peer> {
  const port = await freePort();
  await mkdir(folder, { recursive: true });
  const settings = {
    version: '0.1',
    log: { level: 'error', accesslog: { disabled: log === undefined } },
    storage: {
      ...(s3 ? { s3: s3Driver(s3), redirect: { disable: true } } : { filesystem: { rootdirectory: folder } }),
      cache: { blobdescriptor: 'inmemory' },
      delete: { enabled: true },
    },
    http: { addr: `127.0.0.1:${port}` },
    ...(proxied !== undefined && { proxy: { remoteurl: proxied } }),
  };
  const file = join(folder, 'registry.yml');
  await writeFile(file, JSON.stringify(settings));
  const url = `http://127.0.0.1:${port}`;
  const name = proxied === undefined ? 'docker-registry' : 'docker-registry as a proxy';
  // It does not start with some of the variables of the AWS SDK, such as AWS_CA_BUNDLE.
  const env = { PATH: process.env['PATH'] };
  return startPeer(name, requiredCommand('docker-registry'), ['serve', file], { url, probe: `${url}/v2/`, log, env });
}

function s3Driver({ endpoint, bucket, region, accessKeyId, secretAccessKey }: BucketSettings) {
  const access = { accesskey: accessKeyId, secretkey: secretAccessKey, region, bucket };
  return { ...access, regionendpoint: endpoint, secure: false, rootdirectory: '/docker-registry' };
}

/** nginx serving files by sendfile: the maximum of the machine. */
export async function startNginx(folder: string): Promise<Peer> {
  await mkdir(join(folder, 'files'), { recursive: true });
  await writeFile(join(folder, 'files/ready'), '');
  return startConfigured('nginx', folder, { location: `root ${folder}/files;` }, '/ready');
}

/** nginx as a cache in files, by address: the cost of a server in C without any checks. */
export async function startNginxProxy(folder: string, proxied: string): Promise<Peer> {
  await mkdir(folder, { recursive: true });
  const location = `proxy_pass ${proxied}; proxy_http_version 1.1; proxy_cache kept; proxy_cache_valid 200 1h;`;
  const http = `proxy_cache_path ${folder}/kept keys_zone=kept:1m use_temp_path=off;`;
  return startConfigured('nginx as a proxy', folder, { http, location }, '/v2/');
}

async function startConfigured(
  name: string,
  folder: string,
  { http = '', location }: { http?: string; location: string },
  probe: string,
): Promise<Peer> {
  const port = await freePort();
  const file = join(folder, 'nginx.conf');
  await writeFile(
    file,
    `daemon off; worker_processes 1; pid ${folder}/nginx.pid; error_log /dev/null; user root;
events { worker_connections 1024; }
http { access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000; ${http}
  client_body_temp_path ${folder}/body; proxy_temp_path ${folder}/proxy; fastcgi_temp_path ${folder}/fastcgi;
  uwsgi_temp_path ${folder}/uwsgi; scgi_temp_path ${folder}/scgi;
  server { listen 127.0.0.1:${port}; location / { ${location} } } }`,
  );
  const url = `http://127.0.0.1:${port}`;
  return startPeer(name, requiredCommand('nginx'), ['-c', file], { url, probe: `${url}${probe}` });
}

/** node:http answering every request with the same bytes: the maximum of this runtime. */
export async function startBareNode(folder: string, bytes: Buffer, headers: Record<string, string>): Promise<Peer> {
  const port = await freePort();
  await mkdir(folder, { recursive: true });
  const body = join(folder, 'body');
  await writeFile(body, bytes);
  const program = `const body = require('fs').readFileSync(${JSON.stringify(body)});
const headers = { ...${JSON.stringify(headers)}, 'Content-Length': body.length };
require('http').createServer((q, r) => { r.writeHead(200, headers); r.end(q.method === 'HEAD' ? undefined : body); })
  .listen(${port}, '127.0.0.1');`;
  const url = `http://127.0.0.1:${port}`;
  return startPeer('bare node', process.execPath, ['--eval', program], { url, probe: url });
}

/**
 * node:http relaying each GET to `upstream`: the minimum time of this runtime for a body that passes through. With `stored`, it
 * also hashes the body and writes it to a file, without waiting for the disk.
 */
export async function startBareRelay(folder: string, upstream: string, stored = false): Promise<Peer> {
  const port = await freePort();
  await mkdir(folder, { recursive: true });
  const store = `const hash = require('crypto').createHash('sha256');
  const file = require('fs').createWriteStream(${JSON.stringify(join(folder, 'body'))});
  a.on('data', (chunk) => { hash.update(chunk); file.write(chunk); }).on('end', () => file.end());`;
  const program = `require('http').createServer((q, r) => require('http').get(${JSON.stringify(upstream)} + q.url, (a) => {
  r.writeHead(a.statusCode, a.headers);
  ${stored ? store : ''}
  a.pipe(r);
})).listen(${port}, '127.0.0.1');`;
  const url = `http://127.0.0.1:${port}`;
  const name = `bare relay in node${stored ? ' that hashes and stores' : ''}`;
  return startPeer(name, process.execPath, ['--eval', program], { url, probe: `${url}/v2/` });
}
