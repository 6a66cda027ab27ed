import { createPrivateKey, X509Certificate, type KeyObject } from 'node:crypto';
import { open } from 'node:fs/promises';
import { createSecureContext } from 'node:tls';
import { ConfigError } from '../config/load.ts';
import { environmentName, type Config } from '../config/schema.ts';

/** A certificate with its chain and its private key, as PEM. They belong together. */
export interface Pair {
  readonly cert: Buffer;
  readonly key: Buffer;
  /** The server's own certificate, the first one in the file. */
  readonly leaf: X509Certificate;
}

/** The settings of TLS with both files. */
export interface PairFiles {
  certFile: string;
  keyFile: string;
}

const certSetting = environmentName('server.tls.certFile');
const keySetting = environmentName('server.tls.keyFile');
/** A certificate with a long chain has 20 kB. */
const maxBytes = 2 ** 20;

/** The files of the settings; undefined without TLS. */
export function pairFiles({ certFile, keyFile }: Config['server']['tls']): PairFiles | undefined {
  return certFile === undefined || keyFile === undefined ? undefined : { certFile, keyFile };
}

/** Reads both files. Rejects with a `ConfigError`, one line that names the setting, if they cannot be used together. */
export async function readPair({ certFile, keyFile }: PairFiles): Promise<Pair> {
  const [cert, key] = await Promise.all([readFile(certFile, certSetting), readFile(keyFile, keySetting)]);
  const leaf = attempt(() => new X509Certificate(cert), `${certSetting}: ${certFile} has no certificate in PEM`);
  const privateKey: KeyObject = attempt(
    () => createPrivateKey(key),
    `${keySetting}: ${keyFile} has no private key in PEM that can be read without a password`,
  );
  if (!leaf.checkPrivateKey(privateKey))
    throw new ConfigError(
      `${keySetting}: the key in ${keyFile} does not belong to the first certificate in ${certFile}`,
    );
  attempt(() => createSecureContext({ cert, key }), `${certSetting}: ${certFile} cannot be used`);
  return { cert, key, leaf };
}

async function readFile(path: string, setting: string): Promise<Buffer> {
  try {
    await using file = await open(path);
    const stats = await file.stat();
    if (!stats.isFile() || stats.size > maxBytes) throw new Error(`not a file of at most ${maxBytes} bytes`);
    return await file.readFile();
  } catch (error) {
    throw new ConfigError(`${setting}: cannot read ${path}: ${(error as Error).message}`);
  }
}

/** The result of `work`; throws `ConfigError` with this message and the reason. */
function attempt<T>(work: () => T, message: string): T {
  try {
    return work();
  } catch (error) {
    throw new ConfigError(`${message}: ${(error as Error).message}`);
  }
}
