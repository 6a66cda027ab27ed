import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { dotnet } from '../../../test/support/clients/dotnet.ts';
import { findCommand } from '../../packages.ts';
import type { Bench } from '../bench.ts';
import { pushImage, pushPackage } from '../content.ts';
import type { Entrepot } from '../peers.ts';
import type { Peer } from '../processes.ts';
import { compare } from '../report.ts';
import { rate, rates } from '../requests.ts';
import { anonymousServer, feedOf, loginOf, pushRestored, restoring } from './restore.ts';

/** Everything that is measured is older. */
const document = { minimumAge: { packages: '1s', images: '1s' } };
const versions = 2000;

/** What a minimum age costs: two mirrors of the same upstream, one with a policy. */
export async function policy(bench: Bench): Promise<void> {
  const upstream = await anonymousServer(bench, 'policy-upstream');
  const registry = { name: 'registry.test', kind: 'registry', url: upstream.url, allowPrivateNetwork: true };
  const upstreams = JSON.stringify([feedOf(upstream), registry]);
  let started = 0;
  const mirror = async (hasPolicy: boolean): Promise<Entrepot> => {
    const place = await bench.place(`policy-mirror-${(started += 1)}`);
    const name = hasPolicy ? 'a minimum age' : 'no policy';
    const server = await bench.serve(place, { name, settings: { ENTREPOT_UPSTREAMS: upstreams } });
    if (hasPolicy) await apply(server);
    return server;
  };

  for (let patch = 0; patch < versions; patch += 1) {
    await pushPackage(upstream, { id: 'Bench.Many', version: `1.0.${patch}` });
    if (patch < 100) await pushPackage(upstream, { id: 'Bench.Package', version: `1.0.${patch}` });
  }
  const { manifest } = await pushImage(upstream, 'team/app');
  const warm = [await mirror(true), await mirror(false)];
  const paths = [
    ['a mirrored manifest by tag', '/v2/registry.test/team/app/manifests/v1'],
    ['a mirrored manifest by digest', `/v2/registry.test/team/app/manifests/${manifest.digest}`],
    ['a mirrored flat index of 100 versions', '/v3/package/bench.package/index.json'],
    [`a mirrored flat index of ${versions} versions`, '/v3/package/bench.many/index.json'],
  ] as const;
  // The age of an image counts from the first request.
  for (const peer of warm) for (const [, path] of paths) await statusOf(peer, path);
  await sleep(1500);
  for (const [title, path] of paths) {
    for (const peer of warm) if ((await statusOf(peer, path)) !== 200) throw new Error(`${path} is refused`);
    const load = (peer: Peer) => rate(peer, [path], { seconds: bench.seconds });
    await rates(`${title}, with a policy`, 3 * bench.rounds, warm, load, {}, '≤ 1.05 ×');
  }

  await firstDecisions(bench, warm[0]!);

  if (findCommand('dotnet') === undefined) return;
  await pushRestored(upstream);
  await sleep(1500);
  let clients = 0;
  const restored = async (server: Entrepot) =>
    restoring(await dotnet(join(bench.folder, `policy-client-${(clients += 1)}`), loginOf(server)));
  const warmed = { 'a minimum age': await restored(warm[0]!), 'no policy': await restored(warm[1]!) };
  for (const once of Object.values(warmed)) await once();
  const rounds = bench.quick ? 1 : 9;
  await compare({ title: 'warm restore of 110 packages', unit: 's', bar: '≤ 1.05 ×' }, rounds, warmed);
  const cold = (hasPolicy: boolean) => async () => {
    const server = await mirror(hasPolicy);
    const seconds = await (await restored(server))();
    await server.stop();
    return seconds;
  };
  const subjects = { 'a minimum age': cold(true), 'no policy': cold(false) };
  await compare({ title: 'cold restore of 110 packages', unit: 's', bar: '≤ 1.3 ×' }, rounds, subjects);
}

/** What the first decision for an ID costs: a request after a change of the policy, and one more. */
async function firstDecisions(bench: Bench, server: Entrepot): Promise<void> {
  const rounds = bench.quick ? 30 : 200;
  const path = '/v3/package/bench.many/index.json';
  const times = async () => {
    const before = performance.now();
    await statusOf(server, path);
    return performance.now() - before;
  };
  let changes = 0;
  const decided = async () => {
    await apply(server, { minimumAge: { packages: `${1 + (changes += 1) / 1000}s`, images: '1s' } });
    return times();
  };
  const subjects = { 'decided anew': decided, 'decided before': times };
  const title = `a flat index of ${versions} versions after a change of the policy`;
  await compare({ title, unit: 'ms', bar: 'at most 5 ms apart' }, rounds, subjects);
  await apply(server);
}

async function apply({ url, headers }: Peer, policy: object = document): Promise<void> {
  const request = {
    method: 'PUT',
    headers: { ...headers, 'content-type': 'application/json' },
    body: JSON.stringify(policy),
  };
  const { status } = await fetch(`${url}/v1/policy?layer=all`, request);
  if (status !== 200) throw new Error(`a policy was answered with ${status}`);
}

async function statusOf({ url, headers }: Peer, path: string): Promise<number> {
  const response = await fetch(`${url}${path}`, { headers: { ...headers, accept: '*/*' } });
  await response.arrayBuffer();
  return response.status;
}
