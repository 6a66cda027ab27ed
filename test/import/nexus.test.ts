import test from 'ava';
import { nexusRepositories } from '../../src/import/nexus.ts';
import { DomainError } from '../../src/runtime/errors.ts';
import { UpstreamError } from '../../src/upstream/upstream-error.ts';
import { fakeRemote, type FakeAnswer } from '../support/upstreams/fake-remote.ts';

const { signal } = new AbortController();

async function repositoriesOf(answer: FakeAnswer | undefined, base = 'http://old.test/nexus/') {
  const { remote, requests } = fakeRemote(() => answer, { base });
  const found = await nexusRepositories(remote, signal);
  return { found: found.map(({ kind, address }) => `${kind} ${address.href}`), requests };
}

const listed = (name: unknown, format = 'nuget', type = 'hosted') => ({ name, format, type, url: 'http://inside/' });
const body = (...repositories: unknown[]) => ({ body: JSON.stringify(repositories) });

test('the hosted repositories of packages and images, by addresses below that of the server', async (t) => {
  const longest = 'a'.repeat(200);
  const { found, requests } = await repositoriesOf(
    body(
      listed('own'),
      listed('images', 'docker'),
      listed('public', 'nuget', 'proxy'),
      listed('all', 'docker', 'group'),
      listed('jars', 'maven2'),
      listed('../up'),
      listed('-x'),
      listed(`${longest}a`),
      listed(longest),
      listed('A_b.c-d'),
      listed(5),
      { name: 'a', format: 'nuget' },
      { name: 'a', type: 'hosted' },
      null,
      'text',
    ),
  );
  const at = 'http://old.test/nexus/repository';
  t.deepEqual(found, [
    `nuget ${at}/own/index.json`,
    `registry ${at}/images`,
    `nuget ${at}/${longest}/index.json`,
    `nuget ${at}/A_b.c-d/index.json`,
  ]);
  t.deepEqual(requests, [
    {
      url: 'http://old.test/nexus/service/rest/v1/repositories',
      subject: 'repositories',
      signal,
      isDocument: true,
      headers: { accept: 'application/json' },
    },
  ]);
});

test('a server that lists no repository to read, too many, or none of Nexus is refused', async (t) => {
  const many = (count: number) => body(...Array.from({ length: count }, (_, at) => listed(`r${at}`)));
  t.is((await repositoriesOf(many(1000))).found.length, 1000);
  await t.throwsAsync(repositoriesOf(many(1001)), {
    name: 'TooLarge',
    message: 'The source lists more than 1000 repositories.',
  });
  await t.throwsAsync(repositoriesOf(body(listed('all', 'nuget', 'group'))), {
    name: 'Invalid',
    message: 'old.test lists no hosted repository of packages or images for these credentials.',
  });
  const denied = new UpstreamError('UpstreamUnavailable', 'It refuses.', { denied: true });
  for (const answer of [undefined, { body: 'no JSON' }, denied])
    await t.throwsAsync(repositoriesOf(answer), {
      name: 'Invalid',
      message:
        'http://old.test/nexus/service/rest/v1/repositories does not list the repositories. Import each one by its address: /repository/NAME/index.json of packages, and /repository/NAME/ of images.',
    });
});

test('a server that fails is told by its reason, as the source', async (t) => {
  const down = new UpstreamError('UpstreamTimeout', 'The upstream old.test did not answer.\nMore.', {
    id: 'import/source',
    offline: true,
  });
  const error = await t.throwsAsync(repositoriesOf(down), {
    name: 'UpstreamTimeout',
    message: 'The source old.test did not answer.',
  });
  t.false(error instanceof UpstreamError);
  t.is(error.cause, down);
  const other = new DomainError('TooLarge', 'It is too large.');
  t.is(await t.throwsAsync(repositoriesOf(other)), other);
});
