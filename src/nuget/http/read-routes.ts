import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import type { Router } from 'express';
import { LRUCache } from 'lru-cache';
import { DomainError } from '../../errors.ts';
import { cacheStatus, type Served } from '../../http/cache-status.ts';
import { contextOf } from '../../http/request-context.ts';
import { sendBytes, sendContent, sendJson } from '../../http/send.ts';
import { hives, type Hive } from './addresses.ts';
import type { FileKind } from '../hosted/files.ts';
import { isPackageId } from '../format/nuspec.ts';
import { registrationIndex, registrationLeaf, registrationPage } from './registration.ts';
import type { Answering, Call, FeedParts } from './call.ts';
import { serviceIndex } from './service-index.ts';
import type { Sourced } from '../package-source.ts';
import { keyOfVersion, packageKey } from '../hosted/packages.ts';
import { vulnerabilityIndex, vulnerabilityPage } from './vulnerabilities.ts';

const compress = promisify(gzip);
/** Bytes of finished documents that are held. */
const room = 16 * 2 ** 20;
/** The forms of a package's documents: the flat container's index, and those of the hives. */
type Form = 'package' | Hive;

/** What changes with a push must be asked for each time; a version's files never change. */
export function changing(served: Served) {
  return { ...cacheStatus(served), 'Cache-Control': 'private, no-cache' };
}
function immutable(served: Served) {
  return { ...cacheStatus(served), 'Cache-Control': 'private, max-age=31536000, immutable' };
}

/** The service index, the flat container, registrations and advisories. */
export function addReading(router: Router, answering: Answering, { source, vulnerabilities }: FeedParts): void {
  /** Under all that they are made of: when a package changes nobody has to be told, in no process. */
  const finished = new LRUCache<string, Buffer>({ maxSize: room, sizeCalculation: (bytes) => bytes.length + 200 });
  /** Answers with the document that `build` makes of a package, or with the one that was made before. */
  const sendAbout = async (
    asked: Call,
    form: Form,
    build: (id: string) => Promise<Sourced<object> | undefined>,
  ): Promise<void> => {
    const { accountId, addresses, path } = asked;
    const id = idOf(path);
    const revision = await source.revisionOf(accountId, id);
    const key = revision && `${revision} ${form} ${addresses.at('')}`;
    const held = key && finished.get(key);
    if (held) {
      sendDocument(asked, form, 'hosted', held);
      return;
    }
    const built = await build(id);
    if (!built) throw noPackage(path);
    const bytes = await bytesOf(form, built.value);
    if (key && built.served === 'hosted') finished.set(key, bytes);
    sendDocument(asked, form, built.served, bytes);
  };

  router.get(
    '/index.json',
    answering(
      'read',
      ({ request, response, addresses }) =>
        sendJson(request, response, 200, serviceIndex(addresses), { 'Cache-Control': 'private, no-cache' }),
      'version-check',
    ),
  );

  // https://learn.microsoft.com/nuget/api/package-base-address-resource
  router.get(
    '/package/:id/index.json',
    answering(
      'read',
      (asked) =>
        sendAbout(asked, 'package', async (id) => {
          const found = await source.versionKeys(asked.accountId, id);
          return found && { served: found.served, value: { versions: found.value } };
        }),
      'version-check',
    ),
  );
  router.get(
    '/package/:id/:version/:file',
    answering('read', async (asked) => {
      const { request, response, accountId, path } = asked;
      const kind = kindOf(path);
      const file = kind && (await source.openFile(accountId, idOf(path), path['version']!, kind));
      if (!file) throw noFile(path);
      if (kind === 'nupkg' && request.method === 'GET') {
        const context = contextOf(response);
        context.act = 'download';
        context.version = keyOfVersion(path['version']!)!;
      }
      await sendContent(request, response, file.content, {
        headers: { 'Content-Type': file.type, ...immutable(file.served) },
        ...(file.digest && { etag: `"${file.digest}"` }),
        ranges: true,
      });
    }),
  );

  for (const hive of Object.keys(hives) as Hive[]) {
    const { semVer2 } = hives[hive];
    router.get(
      `/${hive}/:id/index.json`,
      answering(
        'read',
        (asked) =>
          sendAbout(asked, hive, async (id) => {
            const pages = await source.pages(asked.accountId, id, semVer2);
            return pages && { served: pages.served, value: registrationIndex(asked.addresses, hive, id, pages.value) };
          }),
        'version-check',
      ),
    );
    router.get(
      `/${hive}/:id/page/:lower/:upper.json`,
      answering(
        'read',
        async (asked) => {
          const id = idOf(asked.path);
          const lower = keyOfVersion(asked.path['lower']!);
          const upper = keyOfVersion(asked.path['upper']!);
          const bounds = lower !== undefined && upper !== undefined ? { lower, upper } : undefined;
          const versions = bounds && (await source.versions(asked.accountId, id, semVer2, bounds.lower, bounds.upper));
          if (!versions) throw noPackage(asked.path);
          const document = registrationPage(asked.addresses, hive, id, bounds, versions.value);
          sendDocument(asked, hive, versions.served, await bytesOf(hive, document));
        },
        'version-check',
      ),
    );
    router.get(
      `/${hive}/:id/:version.json`,
      answering(
        'read',
        async (asked) => {
          const id = idOf(asked.path);
          const key = keyOfVersion(asked.path['version']!);
          const found = key === undefined ? undefined : await source.versions(asked.accountId, id, semVer2, key, key);
          // Versions that are equal in order, such as 1.0.0-0 and 1.0.0--0, are two all the same.
          const version = found?.value.find((each) => keyOfVersion(each.version) === key);
          if (!found || !version) throw noFile(asked.path);
          const document = registrationLeaf(asked.addresses, hive, id, version);
          sendDocument(asked, hive, found.served, await bytesOf(hive, document));
        },
        'version-check',
      ),
    );
  }

  // https://learn.microsoft.com/nuget/api/vulnerability-info
  router.get(
    '/vulnerabilities/index.json',
    answering('read', async ({ request, response, addresses }) => {
      sendJson(
        request,
        response,
        200,
        vulnerabilityIndex(addresses, await vulnerabilities.pages()),
        changing('hosted'),
      );
    }),
  );
  router.get(
    '/vulnerabilities/base.json',
    answering('read', ({ request, response }) => {
      sendJson(request, response, 200, vulnerabilityPage(), changing('hosted'));
    }),
  );
  router.get(
    '/vulnerabilities/:upstream/:name.json',
    answering('read', async ({ request, response, principal, accountId, path }) => {
      const page = await vulnerabilities.page(path['upstream']!, path['name']!);
      if (!page) throw new DomainError('NotFound', 'There is no such page of vulnerability data.');
      // What is hosted under an id is something else than what the upstream warns of.
      const closed = await source.closedAmong(accountId, Object.keys(page.value), page.upstream, { admitted: true });
      const only = principal.names?.package;
      const open = Object.entries(page.value).filter(([id]) => {
        const key = packageKey(id);
        return !closed.has(key) && (only?.includes(key) ?? true);
      });
      sendJson(request, response, 200, Object.fromEntries(open), changing(page.outcome));
    }),
  );
}

/** The clients of a compressed hive expect gzip whether they asked for it or not. */
async function bytesOf(form: Form, document: object): Promise<Buffer> {
  const text = JSON.stringify(document);
  return isCompressed(form) ? compress(text, { level: 4 }) : Buffer.from(text);
}

function sendDocument({ request, response }: Call, form: Form, served: Served, bytes: Buffer): void {
  sendBytes(request, response, 200, bytes, {
    'Content-Type': 'application/json',
    ...(isCompressed(form) && { 'Content-Encoding': 'gzip' }),
    ...changing(served),
  });
}

function isCompressed(form: Form): boolean {
  return form !== 'package' && hives[form].gzip;
}

/** The id in a path, in lower case; `NotFound` when it can be no id. */
function idOf(path: Record<string, string>): string {
  const id = path['id']!;
  if (isPackageId(id)) return packageKey(id);
  throw noPackage(path);
}

/** `{id}.{version}.nupkg`, `{id}.nuspec`, `readme` or `icon`; the names repeat the folders, in any spelling. */
function kindOf({ id = '', version = '', file = '' }: Record<string, string>): FileKind | undefined {
  const name = file.toLowerCase();
  const key = packageKey(id);
  if (name === 'readme' || name === 'icon') return name;
  if (name === `${key}.nuspec`) return 'nuspec';
  const number = name.startsWith(`${key}.`) && name.endsWith('.nupkg') ? name.slice(key.length + 1, -6) : undefined;
  return number !== undefined && keyOfVersion(number) === keyOfVersion(version) ? 'nupkg' : undefined;
}

function noPackage({ id = '' }: Record<string, string>): DomainError {
  return new DomainError('NotFound', `There is no package ${id.slice(0, 100)} here.`);
}

function noFile({ id = '', version = '' }: Record<string, string>): DomainError {
  return new DomainError('NotFound', `There is nothing such of ${id.slice(0, 100)} ${version.slice(0, 100)} here.`);
}
