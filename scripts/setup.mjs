// Runs before `npm start` and `npm test` on any version of Node, so it is plain JavaScript and imports only modules of
// Node. Installs the locked packages if they are missing or differ from the lock file. Checks that `node` in npm
// scripts is the project's Node 24 (from the package `node`), which runs the TypeScript sources without a build.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, linkSync, lstatSync, mkdirSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const wantedMajor = 24;
const root = dirname(dirname(fileURLToPath(import.meta.url)));
const modules = join(root, 'node_modules');

function fail(line) {
  process.stderr.write('entrepot: ' + line + '\n');
  process.exit(1);
}

function readJson(file) {
  try {
    return JSON.parse(readFileSync(file, 'utf8'));
  } catch {
    return undefined;
  }
}

// npm writes node_modules/.package-lock.json last, so an interrupted install counts as missing. This compares contents,
// not times, because a checkout changes the time of the lock file.
function installed() {
  const locked = readJson(join(root, 'package-lock.json'));
  if (!locked) fail('package-lock.json is missing or unreadable');
  const present = readJson(join(modules, '.package-lock.json'));
  if (!present || !present.packages) return false;
  for (const path of Object.keys(locked.packages)) {
    if (path === '') continue;
    const want = locked.packages[path];
    const have = present.packages[path];
    if (!have) {
      if (want.optional || want.devOptional) continue; // for another platform
      return false;
    }
    if (have.version !== want.version || have.integrity !== want.integrity) return false;
  }
  for (const path of Object.keys(present.packages)) if (!locked.packages[path]) return false;
  return true;
}

function install() {
  process.stderr.write('entrepot: installing packages (npm ci)\n');
  // The `node` that runs npm must not be the one that npm is about to delete.
  const path = (process.env.PATH || '')
    .split(delimiter)
    .filter((folder) => !folder.startsWith(modules))
    .join(delimiter);
  // The lock file decides which version is installed. With an age, npm would ask for the dates of all versions, which takes minutes.
  const options = ['--include=dev', '--min-release-age=0', '--no-audit', '--no-fund', '--loglevel=error'];
  const result = spawnSync('npm', ['ci'].concat(options), {
    cwd: root,
    env: Object.assign({}, process.env, { PATH: path }),
    encoding: 'utf8',
    maxBuffer: 64 * 1024 * 1024,
  });
  if (result.error) fail('npm ci could not be started: ' + result.error.message);
  if (result.status !== 0) {
    const said = result.stderr
      .split('\n')
      .filter((line) => /^npm (error|ERR!) /.test(line))
      .map((line) => line.replace(/^npm (error|ERR!) +/, ''))
      .slice(0, 2)
      .join(': ');
    fail('npm ci failed' + (said ? ': ' + said : ' with status ' + result.status));
  }
}

// The folder of the lock, in the temporary folder, which all users may write to. Only the user who installs may write to
// it, so that no other user can hold the lock, or have a file overwritten by a link. It is not in the checkout, which `npm ci`
// and tools that watch files would see.
function lockFolder() {
  // Windows has no user IDs, and a temporary folder for each user.
  const user = process.getuid ? process.getuid() : undefined;
  const folder = join(tmpdir(), user === undefined ? 'entrepot-setup' : 'entrepot-setup-' + user);
  try {
    mkdirSync(folder, { mode: 0o700 });
  } catch (error) {
    if (error.code !== 'EEXIST') fail('cannot make the folder ' + folder + ': ' + error.message);
  }
  const found = lstatSync(folder);
  const isOwn = user === undefined || (found.uid === user && (found.mode & 0o077) === 0);
  if (!found.isDirectory() || !isOwn)
    fail(folder + ' must be a folder that only you can use; remove it, or set TMPDIR to another folder');
  return folder;
}

// Allows one install at a time per checkout. The lock file is linked into place with the process ID of its owner
// already in it, so that the lock of a dead owner can be detected.
function withLock(work) {
  const lock = join(lockFolder(), createHash('sha256').update(root).digest('hex').slice(0, 16));
  const mine = lock + '.' + process.pid;
  writeFileSync(mine, String(process.pid));
  process.on('exit', () => rmSync(mine, { force: true }));
  for (;;) {
    try {
      linkSync(mine, lock);
      break;
    } catch (error) {
      if (error.code !== 'EEXIST') fail('cannot take the lock ' + lock + ': ' + error.message);
    }
    if (ownerAlive(lock)) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 200);
    else rmSync(lock, { force: true });
  }
  process.on('exit', () => rmSync(lock, { force: true }));
  work();
}

function ownerAlive(lock) {
  try {
    process.kill(Number(readFileSync(lock, 'utf8')), 0);
    return true;
  } catch (error) {
    return error.code === 'EPERM';
  }
}

function major(version) {
  return Number(/^v?(\d+)/.exec(version || '')?.[1]);
}

function ownNode() {
  const own = join(modules, '.bin', 'node');
  return existsSync(own) ? own : process.execPath;
}

// npm scripts find node_modules/.bin/node first, so this process usually is the project's own Node already.
function nodeVersion() {
  if (realpathSync(ownNode()) === realpathSync(process.execPath)) return process.version;
  return spawnSync(ownNode(), ['--version'], { encoding: 'utf8' }).stdout;
}

if (!installed())
  withLock(() => {
    if (!installed()) install();
  });

if (!(major(nodeVersion()) >= wantedMajor))
  fail(
    'Node ' +
      wantedMajor +
      ' is not in node_modules/.bin, because npm did not run the install script of its package `node`; ' +
      'run `npm ci --include=dev --ignore-scripts=false`, or use Node ' +
      wantedMajor +
      ' or newer',
  );

// `setup.mjs build …` also builds: the shell of an npm script runs the `node` that it found before the install.
if (process.argv[2] === 'build') {
  const words = [join(root, 'scripts', 'build.ts')].concat(process.argv.slice(3));
  process.exitCode = spawnSync(ownNode(), words, { stdio: 'inherit' }).status === 0 ? 0 : 1;
}
