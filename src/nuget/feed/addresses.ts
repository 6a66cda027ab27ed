/** The registration hives: whether they contain SemVer 2 versions, and whether they are compressed. */
export const hives = {
  registration: { semVer2: false, gzip: false },
  'registration-gz': { semVer2: false, gzip: true },
  'registration-gz-semver2': { semVer2: true, gzip: true },
} as const;
export type Hive = keyof typeof hives;

/** Makes all addresses of the feed; `base` is its public URL. Ids and versions are written in lower case. */
export class Addresses {
  readonly #base: string;

  constructor(base: string) {
    this.#base = `${base}/v3`;
  }

  at(path: string): string {
    return `${this.#base}/${path}`;
  }

  /** A file of the flat container. */
  file(id: string, version: string, kind: 'nupkg' | 'readme' | 'icon'): string {
    const [key, number] = [part(id), part(version)];
    return `${this.#base}/package/${key}/${number}/${kind === 'nupkg' ? `${key}.${number}.nupkg` : kind}`;
  }

  registrationIndex(hive: Hive, id: string): string {
    return `${this.#base}/${hive}/${part(id)}/index.json`;
  }

  registrationPage(hive: Hive, id: string, lower: string, upper: string): string {
    return `${this.#base}/${hive}/${part(id)}/page/${part(lower)}/${part(upper)}.json`;
  }

  registrationLeaf(hive: Hive, id: string, version: string): string {
    return `${this.#base}/${hive}/${part(id)}/${part(version)}.json`;
  }
}

function part(text: string): string {
  return encodeURIComponent(text.toLowerCase());
}
