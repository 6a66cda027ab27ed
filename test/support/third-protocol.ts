import type { IncomingMessage, ServerResponse } from 'node:http';
import { allow } from '../../src/accounts/allow.ts';
import { ownerOf } from '../../src/accounts/owner.ts';
import { DomainError } from '../../src/runtime/errors.ts';
import type { Digest } from '../../src/runtime/digest.ts';
import { readBody } from '../../src/http/body.ts';
import { cacheStatus } from '../../src/http/cache-status.ts';
import { createEdge, type Edge, type WireOperation } from '../../src/http/edge.ts';
import { sendProblem } from '../../src/http/problem.ts';
import { contextOf } from '../../src/http/request-context.ts';
import { sendContent } from '../../src/http/send.ts';
import { fetchFrom } from '../../src/mirror/fetch/fetch.ts';
import { resourceOf } from '../../src/mirror/fetch/resource.ts';
import { UpstreamPolicy } from '../../src/mirror/policy/upstream-policy.ts';
import type { Core } from '../../src/server/core.ts';
import type { OpenProtocol, Protocol, Web } from '../../src/server/protocol.ts';
import { urlBelow } from '../../src/upstream/url.ts';

// A third protocol, complete and small: texts with a name and a version, at `/notes/<name>/<version>`. The rest of the source
// does not know it. It shows what a protocol has to bring, and that nothing else has to change.

/** Its table. A real protocol has a migration. */
export const notesTable = `CREATE TABLE notes (account_id BIGINT NOT NULL, name VARCHAR(100) NOT NULL,
  version VARCHAR(100) NOT NULL, digest VARCHAR(140) NOT NULL, size BIGINT NOT NULL, reads BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (account_id, name, version))`;

const limits = { limit: 64 * 1024, idle: 10_000 };
const statuses = { NotFound: 404, Invalid: 400, Unauthorized: 401, ScopeMissing: 403, NameDenied: 403, TooLarge: 413 };
const statusOf = ({ name }: DomainError): number | undefined =>
  name.startsWith('Upstream') ? 502 : (statuses as Record<string, number>)[name];

export const notes: Protocol = {
  kind: 'note',
  references: {
    origin: 'hosted',
    tables: ['notes'],
    owned: ['SELECT account_id, digest FROM notes WHERE digest > ? AND digest <= ?'],
  },
  // The rows themselves are not measured.
  rowBytes: async function* () {},
  addDownloads: async (tx, { accountId, name, versions }) => {
    for (const [version, count] of versions)
      await tx.run('UPDATE notes SET reads = reads + ? WHERE account_id = ? AND name = ? AND version = ?', [
        count,
        accountId,
        name,
        version,
      ]);
  },
  inputs: {
    module: import.meta.url,
    readers: [],
    finds: () => false,
    foundNames: '',
    list: { kind: 'notes', expected: 'nothing', read: () => undefined },
  },
  open: (core) => new Notes(core),
};

interface Call {
  request: IncomingMessage;
  response: ServerResponse;
  accountId: number;
  name: string;
  version: string;
}

interface Row {
  digest: Digest;
  size: number;
}

class Notes implements OpenProtocol {
  readonly kind = 'note';
  readonly operations = [];
  readonly searches = [];
  readonly jobs = [];
  readonly names = {
    kind: this.kind,
    hostedAs: () => Promise.resolve(undefined),
    mirroredAmong: () => Promise.resolve([]),
  };
  readonly claims = { contents: 'notes', list: async () => [], release: async () => undefined };
  readonly privateNames;
  readonly upstreams = {
    kind: 'notes',
    entries: { kinds: { note: 'immutable' as const }, dropEvent: () => undefined },
    probe: ({ base }: { base: URL }) => base,
  };
  readonly #core: Core;
  readonly #policy: UpstreamPolicy;

  constructor(core: Core) {
    this.#core = core;
    const ours = core.upstreams.filter(({ config }) => config.kind === this.upstreams.kind);
    this.#policy = new UpstreamPolicy(ours, undefined, core.config.reserved['notes'] ?? []);
    this.privateNames = {
      setting: 'notes',
      separator: '/' as const,
      isAsked: ours.length > 0,
      hosted: async function* () {},
      isMirrored: async () => false,
    };
  }

  mount({ authenticator, quota }: Web) {
    const operations: Readonly<Record<string, WireOperation<Call>>> = {
      GET: { action: 'read', stores: false, run: (call) => this.#get(call) },
      PUT: { action: 'write', stores: true, run: (call) => this.#put(call) },
      DELETE: { action: 'delete', stores: false, run: (call) => this.#delete(call) },
    };
    const edge: Edge<string> = createEdge<string, Call>({
      kind: this.kind,
      log: this.#core.log,
      quota,
      authenticate: (request) => authenticator.principalOf(request),
      find: (_path, { method = '' }) => {
        const found = operations[method];
        if (!found) throw new DomainError('Invalid', 'Use GET, PUT or DELETE.');
        return found;
      },
      open: async ({ request, response, principal, operation, target }) => {
        const [, name = '', version = ''] = /^\/notes\/([a-z.]{1,100})\/([a-z0-9.]{1,100})$/.exec(target) ?? [];
        if (name === '') throw new DomainError('NotFound', 'There is nothing at this address.');
        allow(principal, operation.action, this.kind, name);
        contextOf(response).subject = name;
        return { request, response, accountId: await ownerOf(principal, this.kind, name), name, version };
      },
      statusOf,
      refuse: sendProblem,
    });
    return [
      {
        path: '/notes',
        answer: (request: IncomingMessage, response: ServerResponse) => edge(request.url!, request, response),
      },
    ];
  }

  async explain(_accountId: number, name: string) {
    return { isHosted: false, ...this.#policy.explain(name), spellings: [name], nameThere: name };
  }

  async largest() {
    return [];
  }

  async retain() {
    return {};
  }

  async prefetch() {}

  async #find({ accountId, name, version }: Call): Promise<Row | undefined> {
    const sql = 'SELECT digest, size FROM notes WHERE account_id = ? AND name = ? AND version = ?';
    return this.#core.database.get<Row>(sql, [accountId, name, version]);
  }

  async #put(call: Call): Promise<void> {
    const { request, response, accountId, name, version } = call;
    const bytes = await readBody(request, limits);
    const { blobs } = this.#core;
    const arrival = await blobs.stageBytes(bytes);
    await blobs.commit([arrival], (tx) =>
      tx.upsert(
        'notes',
        ['account_id', 'name', 'version'],
        [{ account_id: accountId, name, version, digest: arrival.digest, size: bytes.length }],
        'digest = new.digest, size = new.size',
      ),
    );
    contextOf(response).act = 'upload';
    response.writeHead(201).end();
  }

  async #get(call: Call): Promise<void> {
    const { request, response, name, version } = call;
    contextOf(response).act = 'download';
    contextOf(response).version = version;
    const hosted = await this.#find(call);
    const content = hosted && (await this.#core.blobs.open(hosted.digest, hosted.size));
    if (content) return sendContent(request, response, content, { headers: cacheStatus('hosted') });
    for (const upstream of this.#policy.candidates(name)) {
      const url = urlBelow(upstream.base.href, name, version);
      const entry = await this.#core.mirror.open({
        ...resourceOf(upstream, 'note', name, version),
        lifetime: 'immutable',
        limit: limits.limit,
        fetch: (_known, signal) => fetchFrom(upstream, { url, subject: name, signal }),
      });
      if (entry) return sendContent(request, response, entry.content, { headers: cacheStatus(entry.outcome) });
    }
    throw new DomainError('NotFound', `There is no note ${name} ${version}.`);
  }

  async #delete(call: Call): Promise<void> {
    const { response, accountId, name, version } = call;
    const sql = 'DELETE FROM notes WHERE account_id = ? AND name = ? AND version = ?';
    const deleted = await this.#core.database.transaction((tx) => tx.run(sql, [accountId, name, version]));
    if (deleted === 0) throw new DomainError('NotFound', `There is no note ${name} ${version}.`);
    response.writeHead(204).end();
  }
}

export default notes.inputs;
