import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { sendBytes } from '../../http/send.ts';
import { programFile } from '../../runtime/program-file.ts';

const types = {
  'console.css': 'text/css; charset=utf-8',
  'console.js': 'text/javascript; charset=utf-8',
  'icon.svg': 'image/svg+xml',
} as const;

type AssetName = keyof typeof types;

/** The address of each file. It contains a digest of the content, so that browsers keep the file. */
export type AssetAddresses = Readonly<Record<AssetName, string>>;

/** The files of the console, in memory. */
export class Assets {
  readonly addresses: AssetAddresses;
  readonly #files: ReadonlyMap<string, { bytes: Buffer; type: string }>;

  constructor() {
    const files = new Map<string, { bytes: Buffer; type: string }>();
    const addresses: Partial<Record<AssetName, string>> = {};
    for (const [name, type] of Object.entries(types) as [AssetName, string][]) {
      const bytes = readFileSync(programFile(`console/assets/${name}`));
      const digest = createHash('sha256').update(bytes).digest('hex').slice(0, 16);
      const address = `/console/assets/${digest}/${name}`;
      files.set(address, { bytes, type });
      addresses[name] = address;
    }
    this.#files = files;
    this.addresses = addresses as AssetAddresses;
  }

  /** Sends the file with the address `path`; false if there is none. */
  send(request: IncomingMessage, response: ServerResponse, path: string): boolean {
    const file = this.#files.get(path);
    if (!file) return false;
    sendBytes(request, response, 200, file.bytes, {
      'Content-Type': file.type,
      'Cache-Control': 'public, max-age=31536000, immutable',
    });
    return true;
  }
}
