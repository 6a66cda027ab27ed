import { createConnection } from 'mysql2/promise';
import type { Entrepot } from '../peers.ts';
import { median } from '../report.ts';
import { numbers } from '../store/words.ts';
import { large, packageId, repository, tagsOfRepository, type Size } from './fill.ts';

const requests = 30;

/** Paths with names that differ in each request, so that no answer is in memory. */
export function paths({ packages, tags }: Size, random: () => number): Record<string, () => string> {
  const below = (limit: number) => Math.floor(random() * limit);
  const id = () => packageId(below(packages)).toLowerCase();
  const repositories = Math.floor((tags * 9) / 10 / tagsOfRepository);
  const image = () => 1 + below(repositories);
  const hosted = () => repository(image());
  const firstTag = () => {
    const number = image();
    return `${repository(number)}/manifests/1.${(number - 1) * tagsOfRepository + 1}`;
  };
  return {
    'registration index': () => `/v3/registration-gz-semver2/${id()}/index.json`,
    'flat container index': () => `/v3/package/${id()}/index.json`,
    nupkg: () => {
      const name = id();
      return `/v3/package/${name}/1.0.0/${name}.1.0.0.nupkg`;
    },
    'search, common word': () => '/v3/search?q=common&take=20',
    'search, one package': () => `/v3/search?q=library${below(packages)}&take=20`,
    'search, vendor': () => `/v3/search?q=vendor${below(5000)}&take=20`,
    'search, nothing': () => `/v3/search?q=&skip=${below(1000)}&take=20`,
    autocomplete: () => `/v3/autocomplete?q=vendor${below(5000)}&take=20`,
    'manifest by tag': () => `/v2/${firstTag()}`,
    'tags of an image': () => `/v2/${hosted()}/tags/list`,
    'tags of a large image': () => `/v2/${large}/tags/list?n=100&last=1.${below(tags)}`,
    catalog: () => `/v2/_catalog?n=100&last=${repository(image())}`,
    '/v1/packages': () => '/v1/packages',
    '/v1/packages/:id': () => `/v1/packages/${id()}`,
    '/v1/containers': () => '/v1/containers',
    '/v1/containers without tags': () => '/v1/containers?tags=0',
    '/v1/containers/:name': () => `/v1/containers/${encodeURIComponent(large)}`,
    'tags of a large image in /v1': () => `/v1/containers/${encodeURIComponent(large)}/tags`,
    'untagged manifests of a large image': () => `/v1/containers/${encodeURIComponent(large)}/manifests`,
    '/v1/search': () => `/v1/search?q=library${below(1000)}`,
    '/v1/search of images': () => `/v1/search?q=app${below(1000)}`,
    '/v1/claims': () => '/v1/claims',
    '/v1/audit': () => '/v1/audit',
    '/v1/account/usage': () => '/v1/account/usage',
    'console: packages': () => '/console/packages',
    'console: package': () => `/console/packages/${id()}`,
    'console: images': () => '/console/images',
    'console: image': () => `/console/images/${encodeURIComponent(large)}`,
    'console: overview': () => '/console/',
    'console: claims': () => '/console/claims',
    'console: search': () => `/console/search?q=library${below(1000)}`,
  };
}

/** Prints the time of each kind of request, and on MySQL the rows and index entries that the database reads for it. */
export async function timeAll(server: Entrepot, databaseUrl: string, size: Size): Promise<void> {
  const cookie = await signIn(server);
  const counter = databaseUrl.startsWith('mysql') ? await openCounter(databaseUrl) : undefined;
  process.stdout.write(
    `| ${size.packages} packages, ${size.packages * 10} versions, ${size.tags} tags | median ms | slowest ms | rows read |\n`,
  );
  for (const [name, path] of Object.entries(paths(size, numbers(7)))) {
    const times: number[] = [];
    const rows: number[] = [];
    let failure = '';
    for (let done = -3; done < requests && times.reduce((sum, each) => sum + each, 0) < 10_000; done += 1) {
      const before = (await counter?.read()) ?? 0;
      const start = performance.now();
      const asked = path();
      const headers = asked.startsWith('/console') ? { cookie } : { authorization: `Bearer ${server.token}` };
      const response = await fetch(server.url + asked, { headers, redirect: 'manual' });
      await response.arrayBuffer();
      if (response.status !== 200) failure = ` (${response.status} ${asked})`;
      if (done < 0) continue;
      times.push(performance.now() - start);
      rows.push(((await counter?.read()) ?? 0) - before - (counter?.own ?? 0));
    }
    const cells = [median(times).toFixed(1), Math.max(...times).toFixed(1), median(rows)];
    process.stdout.write(`| ${name}${failure} | ${cells.join(' | ')} |\n`);
  }
  await counter?.close();
}

/** Counts the rows and index entries that all statements have read. */
async function openCounter(databaseUrl: string) {
  const connection = await createConnection(databaseUrl);
  const read = async () => {
    const [rows] = await connection.query("SHOW GLOBAL STATUS LIKE 'Handler_read%'");
    return (rows as { Value: string }[]).reduce((sum, { Value }) => sum + Number(Value), 0);
  };
  const own: number[] = [];
  for (let round = 0; round < 20; round += 1) own.push(-(await read()) + (await read()));
  return { read, own: median(own), close: () => connection.end() };
}

async function signIn({ url, token }: Entrepot): Promise<string> {
  const body = new URLSearchParams({ token });
  const response = await fetch(`${url}/console/sign-in`, { method: 'POST', body, redirect: 'manual' });
  return response.headers.getSetCookie()[0]!.split(';', 1)[0]!;
}
