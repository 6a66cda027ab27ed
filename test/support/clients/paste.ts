import { spawn } from 'node:child_process';
import { noteUse, type Finished } from './clients.ts';
import { dotnetEnvironment } from './dotnet.ts';

/** Pastes `text` into a shell, which ends at the first command that fails. `home` has all that dotnet and NuGet write. */
export function paste(text: string, cwd: string, home: string): Promise<Finished> {
  const env = dotnetEnvironment(home);
  noteUse('dotnet');
  const child = spawn('bash', ['-e', '-o', 'pipefail'], { cwd, env, stdio: ['pipe', 'pipe', 'pipe'] });
  let [stdout, stderr] = ['', ''];
  child.stdout.on('data', (chunk: Buffer) => (stdout += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()));
  child.stdin.end(text);
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) => resolve({ code: code ?? 1, stdout, stderr }));
  });
}
