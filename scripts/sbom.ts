import { execFileSync } from 'node:child_process';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import packageFile from '../package.json' with { type: 'json' };

// `npm run --silent sbom`: prints the bill of materials of the package as CycloneDX JSON, from the lock file. npm marks what is
// needed only for development, and this removes it. `npm sbom --omit=dev` also removes packages that the program needs, if
// a package for development needs them too.

interface Bill {
  metadata: { component: { name: string } };
  components: { 'bom-ref': string; properties?: { name: string }[] }[];
  dependencies: { ref: string; dependsOn: string[] }[];
}

const options = ['--sbom-format=cyclonedx', '--sbom-type=application', '--package-lock-only'];
const root = dirname(dirname(fileURLToPath(import.meta.url)));
const bill = JSON.parse(
  execFileSync('npm', ['sbom', ...options], { cwd: root, encoding: 'utf8', maxBuffer: 2 ** 26 }),
) as Bill;
const dropped = new Set(
  bill.components
    .filter(({ properties = [] }) => properties.some(({ name }) => name === 'cdx:npm:package:development'))
    .map((each) => each['bom-ref']),
);
bill.metadata.component.name = packageFile.name;
bill.components = bill.components.filter((each) => !dropped.has(each['bom-ref']));
bill.dependencies = bill.dependencies
  .filter(({ ref }) => !dropped.has(ref))
  .map(({ ref, dependsOn }) => ({ ref, dependsOn: dependsOn.filter((each) => !dropped.has(each)) }));
console.log(JSON.stringify(bill, null, 2));
