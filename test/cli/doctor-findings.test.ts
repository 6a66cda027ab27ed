import test, { type ExecutionContext } from 'ava';
import { examine } from '../../src/cli/doctor.ts';
import type { Installation } from '../../src/server/installation.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { TestDisk } from '../support/test-disk.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';

// What doctor finds in an installation that a server has opened. doctor.test.ts has the command.

async function findingOf(installation: Installation, subject: string, now = Date.now()) {
  const found = (await examine(installation, () => now)).find((each) => each.subject === subject);
  return found && `${found.isNote ? 'note' : found.ok ? 'ok' : 'FAIL'} ${found.text}`;
}

/** An object with other values of some properties. */
function changed<T extends object>(object: T, changes: object): T {
  return new Proxy(object, {
    get: (target, key) => {
      const value: unknown = Object.hasOwn(changes, key) ? Reflect.get(changes, key) : Reflect.get(target, key, target);
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
  });
}

/** The same installation with other values of some parts of its core. */
function withParts({ installation }: TestServer, changes: Partial<Record<keyof Installation['core'], object>>) {
  const core = { ...installation.core };
  for (const [name, change] of Object.entries(changes) as [keyof typeof core, object][])
    Object.assign(core, { [name]: changed(core[name] as object, change) });
  return changed(installation, { core });
}

async function mirrorOf(t: ExecutionContext, settings: Record<string, unknown> = {}) {
  const registry = await startUpstreamRegistry(t);
  const server = await startTestServer(t, { upstreams: [registry.settings('up.test', settings)] });
  return { registry, server };
}

test('the clock of this machine may differ by a minute from that of an upstream', async (t) => {
  const { registry, server } = await mirrorOf(t);
  const now = Date.UTC(2030, 0, 1);
  const clockWith = async (date: string | undefined, off = 0) => {
    registry.on('/v2/', (_request, response) => {
      response.sendDate = false;
      response.writeHead(200, date === undefined ? {} : { date }).end();
    });
    return findingOf(server.installation, 'upstream up.test', now + off);
  };
  const date = new Date(now).toUTCString();
  const fine = `ok reachable at ${registry.url.host}; asked anonymously; `;
  for (const off of [0, 60_000, -60_000]) t.is(await clockWith(date, off), `${fine}clocks agree`);
  t.is(await clockWith(date, 60_001), 'FAIL the clock of this machine is 60 s ahead; set it by NTP');
  t.is(await clockWith(date, -90_000), 'FAIL the clock of this machine is 90 s behind; set it by NTP');
  t.is(await clockWith(undefined), `${fine}it sends no date`);
});

test('an upstream that answers something else, or that is not contacted, is told as it is set', async (t) => {
  const { registry, server } = await mirrorOf(t);
  registry.on('/v2/', (_request, response) => response.writeHead(404).end());
  t.is(
    await findingOf(server.installation, 'upstream up.test'),
    `FAIL answers 404 at ${registry.url.href}; check its url and kind`,
  );
  const asked = registry.requests().length;
  const offline = await mirrorOf(t, { mode: 'offline' });
  t.is(await findingOf(offline.server.installation, 'upstream up.test'), 'ok set to offline: not contacted');
  const all = withParts(server, { config: { offline: true } });
  t.is(await findingOf(all, 'upstreams'), 'ok offline: no upstream is contacted');
  t.is(await findingOf(all, 'upstream up.test'), undefined);
  t.is(registry.requests().length, asked);
  const refused = await mirrorOf(t, { allowPrivateNetwork: false });
  const text = await findingOf(refused.server.installation, 'upstream up.test');
  t.regex(text!, /^FAIL .*127\.0\.0\.1 is a private address.*: check the network.* needs allowPrivateNetwork$/);
});

test('a disk with too little room fails, and says what to do', async (t) => {
  const disk = new TestDisk();
  const server = await startTestServer(t, {}, { disk });
  t.is(await findingOf(server.installation, 'storage'), `ok ${server.data} is writable`);
  disk.reported = 1000;
  t.is(
    await findingOf(server.installation, 'storage'),
    'FAIL The disk has less free space than storage.reserve: uploads are refused. Free some space, or lower storage.reserve',
  );
});

const hit = (id: string, digests: string[] = []) => {
  return { id, kind: 'package', name: `name-${id}`, references: ['1.0', ...digests], digests: ['x', ...digests] };
};

test('five things in use are told of a list, packages by version and images by digest', async (t) => {
  const server = await startTestServer(t);
  const now = 1_800_000_000_000;
  const told = async (...inUse: object[]) => {
    const state = { name: 'own', refresh: 1000, entries: 7, refreshedAt: now, failures: 0, failure: null, inUse };
    return findingOf(withParts(server, { knownBad: { states: () => Promise.resolve([state]) } }), 'list own', now);
  };
  const state = `7 entries, last read at ${new Date(now).toISOString()}`;
  t.is(await told(), `ok ${state}`);
  const uses = 'It names content that clients used in the last 30 days:';
  t.is(await told(hit('1'), hit('2', ['sha256:a'])), `note ${state}. ${uses} name-1 1.0 (1); name-2 x, sha256:a (2)`);
  const five = ['1', '2', '3', '4', '5'].map((id) => hit(id));
  const texts = five.map(({ id }) => `name-${id} 1.0 (${id})`).join('; ');
  t.is(await told(...five), `note ${state}. ${uses} ${texts}`);
  t.is(
    await told(...five, hit('6'), hit('7')),
    `note ${state}. ${uses} ${texts}; and 2 more, in the events known_bad.in_use`,
  );
});

test('withdrawn content is a note only above the limit of the mirror', async (t) => {
  const server = await startTestServer(t);
  const told = (count: number, bytes: number, maxSize: number | undefined) => {
    const withdrawals = {
      counts: () => Promise.resolve(new Map(count > 0 ? [['up', count]] : [])),
      bytes: () => Promise.resolve(bytes),
    };
    const config = { mirror: { ...server.installation.core.config.mirror, maxSize } };
    return findingOf(withParts(server, { mirror: { withdrawals }, config }), 'withdrawn content');
  };
  const text = 'stored versions and tags that their upstreams do not offer any more: 3 of up. They stay, with';
  t.is(await told(0, 100, 1), undefined);
  t.is(await told(3, 100, undefined), `ok ${text} 100 bytes`);
  t.is(await told(3, 100, 100), `ok ${text} 100 bytes`);
  t.regex((await told(3, 101, 100))!, /^note .*, with 101 bytes, which is above mirror\.maxSize \(100\): raise the/);
});

const isMirrored = () => Promise.resolve(false);

test('of very many private names, the first patterns are proposed', async (t) => {
  const { server } = await mirrorOf(t);
  const told = (count: number, isAsked = true) => {
    const protocols = server.installation.protocols.map((each) => {
      const hosted = async function* () {
        for (let at = 0; at < count; at += 1) yield `p${at}${each.privateNames.separator}x`;
      };
      return changed(each, { privateNames: changed(each.privateNames, { hosted, isAsked, isMirrored }) });
    });
    return findingOf(changed(server.installation, { protocols }), 'private names');
  };
  t.regex(
    (await told(20))!,
    /^ok searches.*set reserved: \{ packages: \["p0\.\*",.*\], containers: \["p0\/\*",.*\] \}$/,
  );
  t.regex((await told(22))!, /"p19\.\*"\], .*"p19\/\*"\] \} and 4 more$/);
  t.is(await told(22, false), 'ok no hosted name can be sent to an upstream');
});
