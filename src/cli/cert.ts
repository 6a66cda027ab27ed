import { open, rm } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join, resolve } from 'node:path';
import type { Command } from 'commander';
import { refuseOthersFolder } from '../server/command-place.ts';
import { isHostName } from '../config/hosts.ts';
import { loadConfig, type Environment } from '../config/load.ts';
import { authorityOf, hostnameOf, isLoopback } from '../runtime/authority.ts';
import { DomainError } from '../runtime/errors.ts';
import { makeFolder } from '../storage/files/permissions.ts';
import { createSelfSigned } from '../tls/self-signed.ts';
import { shellWord } from './printed.ts';
import type { Terminal } from './with-installation.ts';

const days = 365;
/** So that clients on this machine need no name. */
const ownNames = ['localhost', '127.0.0.1', '::1'];
/** A certificate for a trial needs no more. */
const maxHosts = 100;

/** `entrepot cert` */
export function addCert(program: Command, environment: Environment, terminal: Terminal): void {
  program
    .command('cert')
    .description('create a certificate for a trial of TLS, and print how clients trust it')
    .requiredOption('--self-signed', 'sign it with a new authority of its own, whose key is not kept')
    .option('--host <names...>', 'names and addresses of this server for clients; by default the name of this machine')
    .option('--out <folder>', 'where to write the files; by default the folder tls in the data folder')
    .action(async ({ host = [hostname()], out }: { host?: string[]; out?: string }) => {
      const { data, server } = loadConfig(environment);
      const hosts = [...new Set([...host, ...ownNames])];
      const wrong = hosts.find((each) => !canBeNamed(each));
      if (wrong !== undefined)
        throw new DomainError('Invalid', `--host: "${wrong}" is not a DNS name or an IP address`);
      if (hosts.length > maxHosts) throw new DomainError('Invalid', `--host: use at most ${maxHosts} names`);
      const folder = resolve(out ?? join(data, 'tls'));
      await refuseOthersFolder(out === undefined ? 'ENTREPOT_DATA' : '--out', folder);
      const { ca, cert, key } = createSelfSigned(hosts, days, Date.now());
      await makeFolder(folder);
      await writeNew(folder, { 'server.key': [key, 0o600], 'server.crt': [cert, 0o644], 'ca.crt': [ca, 0o644] });
      const [first] = hosts;
      const authority = authorityOf(first!, server.port);
      // An address of this machine alone is what the server listens on by default.
      const isHidden = isLoopback(hostnameOf(server.host)) && !isLoopback(hostnameOf(first!));
      terminal.stdout.write(instructions(folder, authority, hosts, isHidden));
    });
}

/** Whether a certificate can have it: a DNS name, maybe with `*.` before it, or an IP address without an interface. */
function canBeNamed(host: string): boolean {
  const name = /^\*\.([^:]+)$/.exec(host)?.[1] ?? host;
  return isHostName(name) && !name.includes('%');
}

/** Writes all files, or none if one exists. */
async function writeNew(folder: string, files: Record<string, [content: string, mode: number]>): Promise<void> {
  const written: string[] = [];
  try {
    for (const [file, [content, mode]] of Object.entries(files)) {
      const path = join(folder, file);
      await using handle = await open(path, 'wx', mode);
      written.push(path);
      await handle.chmod(mode);
      await handle.writeFile(content);
    }
  } catch (error) {
    await Promise.all(written.map((path) => rm(path, { force: true })));
    const { code, message } = error as NodeJS.ErrnoException;
    if (code !== 'EEXIST') throw new DomainError('Invalid', `--out: ${message}`);
    throw new DomainError(
      'AlreadyExists',
      `--out: ${folder} has a certificate already; delete it, or use another folder`,
    );
  }
}

/** Other machines reach a server only at an address on which it listens. */
const listening = '\n  export ENTREPOT_HOST=0.0.0.0     # without it, the server listens for this machine only';

/** What to paste, for the server and for each client. */
function instructions(folder: string, host: string, hosts: readonly string[], isHidden: boolean): string {
  const at = (file: string) => shellWord(join(folder, file));
  const [ca, merged] = [at('ca.crt'), at('ca-certificates.crt')];
  return `
Valid for ${days} days, for ${hosts.join(', ')}. Only for a trial: every client must trust ${ca}.

The server:
  export ENTREPOT_TLS_CERT_FILE=${at('server.crt')}
  export ENTREPOT_TLS_KEY_FILE=${at('server.key')}${isHidden ? listening : ''}

Every program of a Debian or Ubuntu machine:
  sudo cp ${ca} /usr/local/share/ca-certificates/entrepot.crt && sudo update-ca-certificates

Docker:
  sudo mkdir -p /etc/docker/certs.d/${host} && sudo cp ${ca} /etc/docker/certs.d/${host}/ca.crt

podman, skopeo and buildah:
  sudo mkdir -p /etc/containers/certs.d/${host} && sudo cp ${ca} /etc/containers/certs.d/${host}/ca.crt

containerd (with config_path = "/etc/containerd/certs.d"):
  sudo mkdir -p /etc/containerd/certs.d/${host} && sudo cp ${ca} /etc/containerd/certs.d/${host}/ca.crt
  printf 'server = "https://${host}"\\n[host."https://${host}"]\\nca = "/etc/containerd/certs.d/${host}/ca.crt"\\n' | sudo tee /etc/containerd/certs.d/${host}/hosts.toml

dotnet on Linux, without root:
  cat /etc/ssl/certs/ca-certificates.crt ${ca} > ${merged}
  export SSL_CERT_FILE=${merged}

curl:
  curl --cacert ${ca} https://${host}/livez

`;
}
