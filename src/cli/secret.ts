import { readSecretFile, type Environment } from '../config/load.ts';
import { DomainError } from '../runtime/errors.ts';
import type { Terminal } from './with-installation.ts';

/** Most characters of a secret from standard input. */
const maxLength = 65_536;

/**
 * The secret of `--token-file`, where "-" is standard input, or of `--token-env`; undefined without these options. It is on no
 * command line: other users of the machine could read it there. A terminal is asked for it, and does not show it.
 */
export async function readSecret(
  { tokenFile, tokenEnv }: { tokenFile?: string; tokenEnv?: string },
  environment: Environment,
  terminal: Terminal,
): Promise<string | undefined> {
  if (tokenEnv !== undefined) {
    const secret = environment[tokenEnv];
    if (!secret) throw new DomainError('Invalid', `--token-env: the environment has no ${tokenEnv}`);
    return secret;
  }
  if (tokenFile !== '-') return tokenFile === undefined ? undefined : readSecretFile(tokenFile, '--token-file');
  const secret = await readLine(terminal);
  if (secret === '') throw new DomainError('Invalid', '--token-file: standard input has no token');
  return secret;
}

async function readLine({ stdin, stderr }: Terminal): Promise<string> {
  if (stdin?.isTTY && stdin.setRawMode) {
    stderr.write('Token (it is not shown): ');
    stdin.setRawMode(true);
  }
  let text = '';
  try {
    for await (const piece of stdin ?? []) {
      text += typeof piece === 'string' ? piece : Buffer.from(piece).toString('utf8');
      // A terminal in this mode sends Ctrl-C and the key for corrections as characters.
      if (text.includes('\u0003')) throw new DomainError('Aborted', 'no token was entered');
      while (/[\b\u007f]/.test(text)) text = text.replace(/[^\b\u007f]?[\b\u007f]/, '');
      if (/[\r\n]/.test(text) || text.length > maxLength) break;
    }
  } finally {
    if (stdin?.isTTY && stdin.setRawMode) {
      stdin.setRawMode(false);
      stderr.write('\n');
    }
  }
  return text
    .trim()
    .split(/[\r\n]/, 1)[0]!
    .trim();
}
