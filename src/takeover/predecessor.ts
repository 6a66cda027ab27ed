import type { Logger } from 'pino';
import type { Cache } from '../cache/cache.ts';
import { ConfigError, readSecretFile } from '../config/load.ts';
import { upstreamKinds } from '../config/protocols.ts';
import type { Config } from '../config/schema.ts';
import type { ImportOptions, ImportSource } from '../import/item.ts';
import { parseNameRule, renamed } from '../import/name-rules.ts';
import { otherServer, type RemoteParts } from '../import/source.ts';
import { matcher } from '../mirror/policy/upstream-policy.ts';
import { digestOf } from '../runtime/digest.ts';
import type { DomainError } from '../runtime/errors.ts';
import { credentialsIn } from '../upstream/configured.ts';
import { fixedCredentials } from '../upstream/credential-source.ts';
import type { UpstreamAuth } from '../upstream/credentials.ts';
import type { Upstream } from '../upstream/upstream.ts';
import { readRights, type AdoptedRight } from './adopted-rights.ts';

type PredecessorConfig = Config['predecessors'][number];

/** A server that is replaced. */
export class Predecessor {
  readonly config: PredecessorConfig;
  readonly remote: Upstream;
  readonly nameHere: ImportOptions['nameHere'];
  readonly isWanted: ImportOptions['isWanted'];
  /** What its users and keys may do here. */
  readonly rights: readonly AdoptedRight[];
  readonly #open: (credentials: Parameters<typeof otherServer>[1], cache?: Cache) => Upstream;
  readonly #log: Logger;

  /**
   * The one of the setting `predecessors.<index>`. Its own host may be in a private network, because the operator named it; hosts to
   * which it leads may not, unless the settings allow it. Throws `ConfigError`.
   */
  constructor(config: PredecessorConfig, index: number, parts: RemoteParts) {
    const key = `predecessors.${index}`;
    this.config = config;
    const rules = config.rename.map((text) => {
      try {
        return parseNameRule(text);
      } catch (error) {
        throw new ConfigError(`${key}.rename: ${(error as DomainError).message}`);
      }
    });
    this.nameHere = (name) => renamed(name, rules);
    const [included, excluded] = [matcher(config.include), matcher(config.exclude)];
    this.isWanted = (name) => included(name) && !excluded(name);
    const { name, kind, url, auth, caFile, allowPrivateNetwork, adoptCredentials } = config;
    const id = `predecessor/${name}`;
    const credentials = auth && credentialsIn({ id }, auth, `${key}.auth`, parts);
    const ca = caFile === undefined ? undefined : readSecretFile(caFile, `${key}.caFile`);
    this.#open = (given, cache = parts.cache) =>
      otherServer({ kind, url: new URL(url), name, id, allowPrivateNetwork }, given, { ...parts, cache, ca });
    this.remote = this.#open(credentials);
    this.#log = parts.log;
    this.rights =
      typeof adoptCredentials === 'object'
        ? readRights(adoptCredentials.rightsFile, `${key}.adoptCredentials.rightsFile`, kind)
        : [];
  }

  /** The same server with the credentials of a client. The caller closes it. */
  asUser(auth: UpstreamAuth, cache: Cache): Upstream {
    return this.#open(fixedCredentials(auth), cache);
  }

  /** What a client with the right credentials can read: the index of a feed, or `/v2/` of a registry. */
  get signInAddress(): URL {
    const { kind, url } = this.config;
    return kind === upstreamKinds[0] ? new URL(url) : new URL('/v2/', url);
  }

  warn(message: string): void {
    this.#log.warn({ predecessor: this.name }, message);
  }

  get name(): string {
    return this.config.name;
  }

  get source(): ImportSource {
    return { type: 'server', remote: this.remote, from: this.name };
  }

  /** Changes with the settings that say as what its content comes. Its address may change: it is the same server. */
  get sourceKey(): string {
    const { account, rename } = this.config;
    return digestOf(Buffer.from(JSON.stringify([account, rename]))).slice('sha256:'.length);
  }
}
