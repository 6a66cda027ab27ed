import type { Config } from '../../config/schema.ts';
import { fetchFrom } from '../../mirror/fetch/fetch.ts';
import { isUpstreamFailure, type MirrorEntry, type Mirror } from '../../mirror/mirror.ts';
import type { Admission, MirroredName } from '../../mirror/policy/admission.ts';
import { resourceOf } from '../../mirror/fetch/resource.ts';
import type { StagedFile } from '../../storage/files/staged-file.ts';
import { symbolsOf } from '../../upstream/configured.ts';
import type { Upstream } from '../../upstream/upstream.ts';
import { urlBelow } from '../../upstream/url.ts';
import type { PackageSource } from './package-source.ts';
import { isWindowsPdb, keyOfPdb } from '../format/symbols.ts';

const portable = /^[0-9a-f]{32}ffffffff$/;
/** The key of a Windows PDB, the older format: a GUID and an age. */
const windows = /^[0-9a-f]{33,40}$/;

/** PDBs from the upstreams' symbol servers, through the mirror. */
export class UpstreamSymbols {
  readonly #mirror: Mirror;
  readonly #source: PackageSource;
  readonly #admission: Admission;
  readonly #limits: Config['limits'];

  constructor(mirror: Mirror, source: PackageSource, admission: Admission, limits: Config['limits']) {
    this.#mirror = mirror;
    this.#source = source;
    this.#admission = admission;
    this.#limits = limits;
  }

  /**
   * The PDB with this name and signature, both in any case, from the first upstream that has it; undefined if none has
   * it. A signature identifies one file, so any upstream may serve it. `checksum` is the client's `SymbolChecksum`
   * header, which some symbol servers require (SSQP).
   */
  async open(
    accountId: number,
    fileName: string,
    signature: string,
    checksum: string | undefined,
  ): Promise<MirrorEntry | undefined> {
    const [name, key] = [fileName.toLowerCase(), signature.toLowerCase()];
    if (!/^[^/\\]{1,200}\.pdb$/.test(name) || !windows.test(key)) return undefined;
    let failure: unknown;
    // A file usually has the name of its package. Never send a hosted or reserved name upstream.
    for (const upstream of await this.#source.candidates(accountId, name.slice(0, -'.pdb'.length))) {
      const base = symbolsOf(upstream.config);
      if (!base || !(await this.#admission.serves(symbolsName(accountId, upstream, name), key))) continue;
      try {
        const entry = await this.#openFrom(upstream, base, name, key, checksum);
        if (entry) return entry;
      } catch (error) {
        if (!isUpstreamFailure(error)) throw error;
        failure ??= error;
      }
    }
    if (failure !== undefined) throw failure as Error;
    return undefined;
  }

  #openFrom(
    upstream: Upstream,
    base: URL,
    name: string,
    key: string,
    checksum: string | undefined,
  ): Promise<MirrorEntry | undefined> {
    const url = urlBelow(base, name, key, name);
    const headers: Record<string, string> = {};
    if (checksum !== undefined && /^[\w:;, -]{1,1000}$/.test(checksum)) headers['symbolchecksum'] = checksum;
    return this.#mirror.open({
      ...resourceOf(upstream, 'symbols', name, key),
      lifetime: 'immutable',
      limit: this.#limits.nupkg,
      verify: (staged) => verifyPdb(staged, key),
      fetch: async (stored, signal) =>
        fetchFrom(upstream, { url, subject: name, headers, known: stored, service: 'symbols', signal }),
    });
  }
}

async function verifyPdb(staged: StagedFile, key: string): Promise<Record<string, string>> {
  const read = async (start: number, length: number) => {
    const bytes = Buffer.alloc(length);
    return bytes.subarray(0, await staged.read(bytes, start));
  };
  const found = await keyOfPdb(read);
  if (portable.test(key) ? found !== key : !isWindowsPdb(await read(0, 32))) {
    throw new Error(found === undefined ? 'it is not the requested PDB' : `it is the PDB ${found}`);
  }
  return {};
}

/** Symbols as policies see them: no version of a package is known for them. */
function symbolsName(accountId: number, upstream: Upstream, name: string): MirroredName {
  return { accountId, upstream, kind: 'symbols', name, shown: [name], facts: { of: async () => new Map() } };
}
