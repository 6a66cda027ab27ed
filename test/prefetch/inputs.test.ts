import test, { type ExecutionContext } from 'ava';
import { array, assert, constantFrom, json, oneof, property, string } from 'fast-check';
import { DomainError, isDomainError } from '../../src/runtime/errors.ts';
import { formatRange } from '../../src/nuget/format/range.ts';
import { parseImageName } from '../../src/oci/prefetch/image-name.ts';
import type { OciItem } from '../../src/oci/prefetch/image-item.ts';
import type { NugetItem } from '../../src/nuget/prefetch/package-item.ts';
import { isPlatform, parsePlatform, platformText } from '../../src/prefetch/platform.ts';
import { inputs } from '../../src/server/installation.ts';
import { substitute } from '../../src/oci/prefetch/substitute.ts';

type Known = NugetItem | OciItem;

const digest = `sha256:${'a'.repeat(64)}`;

function read(file: string, text: string, values: Record<string, string> = {}, kind?: string): Known[] {
  return inputs.read({ file, text, values: new Map(Object.entries(values)) }, kind) as Known[];
}

/** `line name`, short enough for a table. */
function short(item: Known): string {
  const { line } = item.location;
  switch (item.kind) {
    case 'package':
      return `${line} ${item.id}@${item.version}`;
    case 'dependency':
      return `${line} ${item.id} ${formatRange(item.range)}${item.frameworks.map((each) => ` ${each}`).join('')}`;
    case 'central':
      return `${line} ${item.id} central`;
    case 'image': {
      const platforms = (item.platforms ?? []).map((each) => ` ${platformText(each)}`).join('');
      return `${line} ${item.image.registry ?? '-'} ${item.image.repository} ${item.image.reference}${platforms}`;
    }
    case 'unclear':
      return `${line} ?${item.what}: ${item.reason}`;
    default:
      throw new Error(`${line} has no known kind`);
  }
}

function list(file: string, text: string, values?: Record<string, string>, kind?: string): string[] {
  return read(file, text, values, kind).map(short);
}

function fails(t: ExecutionContext, file: string, text: string, message: RegExp, kind?: string): void {
  const error = t.throws(() => read(file, text, {}, kind), { instanceOf: DomainError }, text);
  t.regex(error.message, message);
}

test('the kind of a file is found by its name', (t) => {
  const kinds: Record<string, string | undefined> = {
    'a/packages.lock.json': 'lock',
    'obj/project.assets.json': 'assets',
    'Directory.Packages.props': 'project',
    'src/App.csproj': 'project',
    'Lib.fsproj': 'project',
    'Lib.VBPROJ': 'project',
    'Common.targets': 'project',
    'packages.App.lock.json': 'lock',
    'Packages.Lock.json': 'lock',
    'my.packages.lock.json': undefined,
    'packages.lock.json.orig': undefined,
    'my.project.assets.json': undefined,
    'project.assets.json.orig': undefined,
    'App.csproj.user': undefined,
    'my.packages.config': undefined,
    'packages.config.old': undefined,
    'my.dotnet-tools.json': undefined,
    'dotnet-tools.json.old': undefined,
    'my.global.json': undefined,
    'Directory.Packages.props.old': undefined,
    'global.json.old': undefined,
    'images.list': 'list',
    'images.LST': 'list',
    'images.txt.old': undefined,
    'old/packages.config': 'packages-config',
    '.config/dotnet-tools.json': 'tools',
    'global.json': 'sdks',
    'App.sln': undefined,
    'compose.yaml': 'compose',
    'docker-compose.prod.yml': 'compose',
    Dockerfile: 'dockerfile',
    'Dockerfile.test': 'dockerfile',
    'web.dockerfile': 'dockerfile',
    Containerfile: 'dockerfile',
    'Containerfile.dev': 'dockerfile',
    'a.containerfile': 'dockerfile',
    Dockerfiles: undefined,
    MyDockerfile: undefined,
    'a.dockerfile.bak': undefined,
    'podman-compose.yaml': 'compose',
    'compose-dev.yml': 'compose',
    'compose.override.YAML': 'compose',
    'composed.yaml': 'kubernetes',
    'my-compose.yaml': 'kubernetes',
    'compose.yaml.bak': undefined,
    'a.yaml.bak': undefined,
    'images.txt': 'list',
    '-': 'list',
    'deploy.yaml': 'kubernetes',
    'data.json': undefined,
    README: undefined,
  };
  for (const [file, kind] of Object.entries(kinds))
    t.is(inputs.kindOf({ file, text: '', values: new Map() }), kind, file);
  const found = Object.keys(kinds).filter((file) => inputs.finds(file.split('/').at(-1)!));
  t.deepEqual(found, [
    'a/packages.lock.json',
    'Directory.Packages.props',
    'src/App.csproj',
    'Lib.fsproj',
    'Lib.VBPROJ',
    'packages.App.lock.json',
    'Packages.Lock.json',
    'old/packages.config',
    '.config/dotnet-tools.json',
    'global.json',
    'compose.yaml',
    'docker-compose.prod.yml',
    'Dockerfile',
    'Dockerfile.test',
    'web.dockerfile',
    'Containerfile',
    'Containerfile.dev',
    'a.containerfile',
    'podman-compose.yaml',
    'compose-dev.yml',
    'compose.override.YAML',
  ]);
  for (const file of ['a/All.sln', 'All.SLNX']) t.truthy(inputs.solutionOf(file), file);
  for (const file of ['All.slnx.old', 'All.slnf', 'sln']) t.is(inputs.solutionOf(file), undefined, file);
  t.is(inputs.kindOf({ file: 'stack.yml', text: 'services:\n  a:\n', values: new Map() }), 'compose');
  for (const text of ['kind: Pod\nservices:\n', 'services:\nkind : Pod\n', 'a:\n  services:\n', 'services'])
    t.is(inputs.kindOf({ file: 'x.yml', text, values: new Map() }), 'kubernetes', text);
  for (const text of ['services :\n', 'a: b\nservices:\n  c:\n    kind: d\n'])
    t.is(inputs.kindOf({ file: 'x.yml', text, values: new Map() }), 'compose', text);
  fails(
    t,
    'data.json',
    '{}',
    /^data\.json: .*unknown; known are packages\.lock\.json, .*\*\.csproj, .*global\.json, .*compose\.yaml, Kubernetes manifests \(\*\.yaml\), Dockerfile, .*\*\.slnx; or set --kind lock\|assets/,
  );
});

test('tools, MSBuild SDKs and packages.config list exact versions', (t) => {
  const tools = `{
    // "Not.This": { "version": "1.0.0" } /*
    "version": 1, "tools": {
      "dotnet-ef": { "version": "9.0.1", "commands": ["dotnet-ef // \\" */"] }, /* and
      "Nor.This": { "version": "1.0.0" }, */
      "Other.Tool": { "version": "2.0", "commands": [] }
    } } // end`;
  t.deepEqual(list('.config/dotnet-tools.json', tools), ['4 dotnet-ef@9.0.1', '6 Other.Tool@2.0.0']);
  t.deepEqual(list('dotnet-tools.json', '{"tools": {}} // no line follows'), []);
  t.deepEqual(list('dotnet-tools.json', '/**/{"tools": {"a": {"version": "1.0.0"}}}//'), ['1 a@1.0.0']);
  t.deepEqual(list('dotnet-tools.json', '//\n/*\n*/{"tools": {\n"a": {"version": "1.0.0"}}}'), ['4 a@1.0.0']);
  fails(t, 'dotnet-tools.json', '{"tools": {\n"a": {}}}', /^dotnet-tools\.json:2: a has no version/);
  fails(t, 'dotnet-tools.json', '{"version": 1}', /"tools": expected an object/);
  fails(t, 'dotnet-tools.json', '{ /* "tools": {} }', /not JSON/);
  fails(t, 'dotnet-tools.json', '{"tools": {\n"a b": {"version": "1.0"}}}', /:2: "a b" is not a package id$/);
  fails(t, 'dotnet-tools.json', '{"tools": {\n"a": {"version": 1}}}', /:2: a has no version under "version"$/);
  fails(t, 'dotnet-tools.json', '{"tools":\n{"a": null}}', /:2: "a": expected an object$/);
  fails(t, 'dotnet-tools.json', '{\n"tools": []}', /:2: "tools": expected an object$/);
  const sdks = '{ "sdk": { "version": "10.0.100" },\n "msbuild-sdks": { "Microsoft.Build.Traversal": "4.1.0" } }';
  t.deepEqual(list('global.json', sdks), ['2 Microsoft.Build.Traversal@4.1.0']);
  t.deepEqual(list('global.json', '{ "sdk": { "version": "10.0.100" } }'), []);
  fails(t, 'global.json', '{"msbuild-sdks": {\n"a": "latest"}}', /^global\.json:2: a has no version/);
  const packages =
    '<?xml version="1.0"?>\n<packages>\n<package id="One" version="1.0" targetFramework="net48" />\n<other/>\n</packages>';
  t.deepEqual(list('packages.config', packages), ['3 One@1.0.0']);
  fails(
    t,
    'packages.config',
    '<packages>\n<package id="a b" version="1.0"/></packages>',
    /:2: "a b" is not a package id/,
  );
  fails(t, 'packages.config', '<packages><package id="a" version="*"/></packages>', /:1: "\*" is not a version of a/);
  fails(t, 'packages.config', '<Project/>', /expected a <packages>/);
  fails(t, 'packages.config', '<packages><package version="1.0"/></packages>', /:1: "" is not a package id$/);
  fails(t, 'packages.config', '<packages><package id="a"/></packages>', /:1: "" is not a version of a$/);
  t.deepEqual(list('packages.config', '<packages><Package Id="One" Version=" 1.0 "/></packages>'), ['1 One@1.0.0']);
});

test('image names are parsed as by clients', (t) => {
  const table: [string, string | undefined][] = [
    ['alpine', '- alpine latest'],
    ['alpine:3.20', '- alpine 3.20'],
    ['library/alpine', '- library/alpine latest'],
    ['ghcr.io/org/app:1', 'ghcr.io org/app 1'],
    ['localhost/app', 'localhost app latest'],
    ['registry:5000/app', 'registry:5000 app latest'],
    ['127.0.0.1:8080/docker.io/library/alpine:3', '127.0.0.1:8080 docker.io/library/alpine 3'],
    [`alpine:3.20@${digest}`, `- alpine ${digest}`],
    [`GHCR.io/a@${digest}`, `ghcr.io a ${digest}`],
    [`registry:5000/a:1@${digest}`, `registry:5000 a ${digest}`],
    ['localhost', '- localhost latest'],
    ['x.y', '- x.y latest'],
    ['localhosts/a', '- localhosts/a latest'],
    ['[::1]:5000/a:2', '[::1]:5000 a 2'],
    ['a.b-c.io:65535/d/e', 'a.b-c.io:65535 d/e latest'],
    ['a:123456/b', undefined],
    ['a:5000/b', 'a:5000 b latest'],
    ['a:/b', undefined],
    ['a:5x/b', undefined],
    ['a_b.io/c', undefined],
    ['a.io-/c', undefined],
    ['[x]:1/a', undefined],
    ['x[::1]/a', undefined],
    ['[::1]x/a', undefined],
    ['a.io/', undefined],
    ['a.io/B', undefined],
    [`${'a'.repeat(1018)}.io/bc`, `${'a'.repeat(1018)}.io bc latest`],
    [`${'a'.repeat(1018)}.io/bcd`, undefined],
    ['', undefined],
    ['Alpine', undefined],
    ['alpine:', undefined],
    ['alpine:a b', undefined],
    ['alpine@sha256:12', undefined],
    ['a//b', undefined],
    ['-.x/y', undefined],
    [':tag', undefined],
  ];
  for (const [text, expected] of table) {
    const name = parseImageName(text);
    t.is(name && `${name.registry ?? '-'} ${name.repository} ${name.reference}`, expected, text);
  }
});

const matches = (actual: string, wanted: string) => isPlatform(parsePlatform(actual)!, parsePlatform(wanted)!);

test('a platform without a variant matches any variant', (t) => {
  t.true(matches('linux/arm/v7', 'linux/arm'));
  t.true(matches('linux/arm/v7', 'Linux/ARM/v7'));
  t.false(matches('linux/arm/v6', 'linux/arm/v7'));
  t.false(matches('linux/arm', 'linux/arm/v7'));
  t.true(matches('linux/arm64', 'linux/arm64/v8'));
  t.false(matches('windows/amd64', 'linux/amd64'));
  for (const text of ['linux', 'linux/', 'linux/amd64/v2/x', 'linux amd64', '']) t.is(parsePlatform(text), undefined);
});

test('variables', (t) => {
  const values: Record<string, string> = { A: 'a', _B2: 'b', EMPTY: '' };
  const table: [string, string | RegExp][] = [
    ['plain', 'plain'],
    ['$A-${A}', 'a-a'],
    ['$$A', '$A'],
    ['${NO:-d}', 'd'],
    ['${NO-}', ''],
    ['${EMPTY-d}', ''],
    ['${EMPTY:-d}', 'd'],
    ['${A:+x}${NO+y}', 'x'],
    ['${NO:-${ALSO:-deep}}/z', 'deep/z'],
    ['${A:?wanted}', 'a'],
    ['$A_1', /^A_1 has no value/],
    ['$A.$A', 'a.a'],
    ['$_B2-', 'b-'],
    ['${_B2}', 'b'],
    ['${EMPTY:+x}|${EMPTY+y}|${A+$A}', '|y|a'],
    ['${NO:-$A}', 'a'],
    ['${NO-{}', '{'],
    ['${NO-x}}', 'x}'],
    ['${NO:-a\nb}', 'a\nb'],
    ['${A:+${NO}}', /^NO has no value/],
    ['${A:-${NO}}', 'a'],
    ['$1', /^"\$" at character 1 does not begin a variable; write \$\$ for a dollar sign$/],
    ['${1A}', /^"\$\{1A\}" is not a supported variable$/],
    ['${A.B}', /not a supported variable/],
    [`\${${'#'.repeat(100)}}`, /^"\$\{#{60}\}" is not a supported variable$/],
    [`${'${NO:-'.repeat(17)}x${'}'.repeat(17)}`, 'x'],
    [`${'${NO:-'.repeat(18)}x${'}'.repeat(18)}`, /nested too deeply/],
    ['$NO', /^NO has no value; give it with --arg NO=…$/],
    ['${NO?wanted}', /^NO has no value/],
    ['${NO:?wanted}', /^NO has no value/],
    ['${A', /does not begin a variable/],
    ['x$', /^"\$" at character 2 does not begin a variable/],
    ['x${', /^"\$" at character 2 does not begin a variable/],
    ['${A#x}', /not a supported variable/],
    [`${'${NO:-'.repeat(40)}x${'}'.repeat(40)}`, /nested too deeply/],
  ];
  for (const [text, expected] of table) {
    const { value, reason } = substitute(text, (name) => values[name]);
    if (typeof expected === 'string') t.deepEqual([value, reason], [expected, undefined], text);
    else t.regex(value === undefined ? (reason ?? '') : '', expected, text);
  }
});

test('plain lists', (t) => {
  const text = `# what we need\nNewtonsoft.Json@13.0.3\r\n  alpine:3.20   # small\n\nalpine@${digest}\nA@1.0-Beta\n`;
  t.deepEqual(list('-', text), [
    '2 Newtonsoft.Json@13.0.3',
    '3 - alpine 3.20',
    `5 - alpine ${digest}`,
    '6 A@1.0.0-beta',
  ]);
  t.deepEqual(list('x', 'a\n', {}, 'images'), ['1 - a latest']);
  t.deepEqual(list('-', '\uFEFFA@1.0\n'), ['1 A@1.0.0'], 'a byte order mark is no part of the first line');
  t.deepEqual(list('-', 'A@*\n#B@1.0\n'), ['1 A [*, )']);
  t.deepEqual(list('-', 'a:1\t# small\r\nB@2.0\r\n'), ['1 - a 1', '2 B@2.0.0']);
  fails(t, 'l', 'A@1.0#x', /^l:1: "A@1\.0#x" is not id@version/, 'packages');
  fails(t, 'l', 'a b@1.0', /^l:1: "a b@1\.0" is not id@version or id@\* \(a package\)$/, 'packages');
  fails(t, 'l', '@1.0', /^l:1: "@1\.0" is not id@version/, 'packages');
  for (const text of ['A', '12']) fails(t, 'l', text, /^l:1: "\w+" is not id@version/, 'packages');
  fails(t, 'l', `${'x'.repeat(119)}@x`, /^l:1: "x{119}@…" is not id@version/, 'packages');
  fails(t, 'l', `${'x'.repeat(118)}@x`, /^l:1: "x{118}@x" is not id@version/, 'packages');
  fails(
    t,
    'l.txt',
    '\nno such thing\n',
    /^l\.txt:2: "no such thing" is not id@version or id@\* \(a package\) or name:tag/,
  );
  fails(t, 'l', 'a@1.0', /^l:1: .* is not name:tag/, 'images');
  fails(t, 'l', 'a:1', /^l:1: .* is not id@version/, 'packages');
});

test('lock files', (t) => {
  const text = JSON.stringify(
    {
      version: 2,
      dependencies: {
        'net8.0': {
          'Newtonsoft.Json': { type: 'Direct', requested: '[13.0.1, )', resolved: '13.0.3', contentHash: 'x' },
          Mine: { type: 'Project', dependencies: {} },
          'System.X': { type: 'Transitive', resolved: '4.3.0.0' },
        },
        'net8.0/linux-x64': { 'Runtime.X': { type: 'CentralTransitive', resolved: '1.0.0-RC.1' } },
      },
    },
    undefined,
    1,
  );
  t.deepEqual(list('packages.lock.json', text), [
    '5 Newtonsoft.Json@13.0.3',
    '15 System.X@4.3.0',
    '21 Runtime.X@1.0.0-rc.1',
  ]);
  fails(t, 'packages.lock.json', '{\n "version": 1,\n}', /^packages\.lock\.json:3: not JSON: /);
  fails(t, 'packages.lock.json', '{\n "version": 1 "a",\n\n}', /^packages\.lock\.json:2: not JSON: Expected /);
  fails(t, 'packages.lock.json', '{"version": "x\n\n"}', /^packages\.lock\.json:1: not JSON: /);
  fails(t, 'packages.lock.json', '{"version": 1, \uFEFF"dependencies": {}}', /^packages\.lock\.json:1: not JSON/);
  fails(t, 'packages.lock.json', '', /^packages\.lock\.json:1: not JSON/);
  for (const text of ['[]', 'null', '5', '"a"']) fails(t, 'packages.lock.json', text, /:1: expected a JSON object/);
  fails(t, 'packages.lock.json', '{"version": 3}', /"version": expected 1 or 2/);
  fails(t, 'packages.lock.json', '{"version": 1}', /"dependencies": expected an object/);
  fails(t, 'packages.lock.json', '{"version": 1,\n"dependencies": []}', /:2: "dependencies": expected an object$/);
  fails(t, 'packages.lock.json', '{"version": 1,\n"dependencies": null}', /:2: "dependencies": expected an object$/);
  fails(t, 'packages.lock.json', '{"version": 1,\n"dependencies": "x"}', /:2: "dependencies": expected an object$/);
  fails(
    t,
    'packages.lock.json',
    '{"version": 1, "dependencies": {"net8.0": {\n"A": {"type": "Direct"}}}}',
    /^packages\.lock\.json:2: A has no version under "resolved"$/,
  );
  fails(
    t,
    'packages.lock.json',
    '{"version": 1, "dependencies": {"net8.0": {\n"A": 1}}}',
    /:2: "A": expected an object$/,
  );
  fails(
    t,
    'packages.lock.json',
    '{"version": 1, "dependencies": {\n"net8.0": 1}}',
    /:2: "net8\.0": expected an object$/,
  );
  t.deepEqual(
    list('packages.lock.json', '\uFEFF{"version": 1, "dependencies": {"net8.0": {"A": {"resolved": "1.0"}}}}'),
    ['1 A@1.0.0'],
  );
  const wrong = '{"version": 1, "dependencies": {"net8.0": {\n"A": {"type": "Direct", "resolved": "one"}}}}';
  fails(t, 'packages.lock.json', wrong, /^packages\.lock\.json:2: A has no version/);
});

const packs = (project: string) => `{"version": 3, "libraries": {}, "project": ${project}}`;

test('assets files', (t) => {
  const assets = {
    version: 3,
    targets: {},
    libraries: {
      'Newtonsoft.Json/13.0.3': { type: 'package', path: 'newtonsoft.json/13.0.3' },
      'Mine/1.0.0': { type: 'project' },
    },
    project: {
      frameworks: {
        'net8.0': { downloadDependencies: [{ name: 'Microsoft.NETCore.App.Ref', version: '[8.0.11, 8.0.11]' }] },
        net48: {},
      },
    },
  };
  t.deepEqual(list('project.assets.json', JSON.stringify(assets, undefined, 1)), [
    '5 Newtonsoft.Json@13.0.3',
    '18 Microsoft.NETCore.App.Ref@8.0.11',
  ]);
  fails(t, 'project.assets.json', '{"version": 3}', /"libraries": expected an object/);
  for (const version of [2, 4])
    t.deepEqual(list('project.assets.json', `{"version": ${version}, "libraries": {}}`), []);
  for (const version of ['1', '5', '"3"'])
    fails(t, 'project.assets.json', `{\n"version": ${version}, "libraries": {}}`, /:2: "version": expected 2, 3 or 4$/);
  t.deepEqual(list('project.assets.json', '{"version": 3, "libraries": {}, "project": {}}'), []);
  for (const [project, message] of [
    ['\n[]', /:1: "project": expected an object$/],
    ['{\n"frameworks": []}', /:2: "frameworks": expected an object$/],
    ['{"frameworks": {\n"net8.0": 1}}', /:2: "net8\.0": expected an object$/],
    ['{"frameworks": {"net8.0": {\n"downloadDependencies": [1]}}}', /:2: "downloadDependencies": expected an object$/],
    ['{"frameworks": {"net8.0": {\n"downloadDependencies": [{}]}}}', /:2: "downloadDependencies": expected a "name"$/],
    [
      '{"frameworks": {"net8.0": {"downloadDependencies": [{"name":\n"A"}]}}}',
      /:2: "A": expected a "version" such as \[8\.0\.0, 8\.0\.0\]$/,
    ],
    [
      '{"frameworks": {"net8.0": {"downloadDependencies": [{"name":\n"A", "version": "(, 1.0]"}]}}}',
      /:2: "A": expected a "version"/,
    ],
    [
      '{"frameworks": {"net8.0": {"downloadDependencies": [{"name": "A", "version": "x"}]}}}',
      /"A": expected a "version"/,
    ],
  ] as const)
    fails(t, 'project.assets.json', packs(project), message);
  fails(t, 'project.assets.json', '{"version": 3, "libraries": {\n"A/1": 1}}', /:2: "A\/1": expected an object$/);
  fails(
    t,
    'project.assets.json',
    '{"version": 3, "libraries": {\n"A/x": {"type": "package"}}}',
    /:2: A has no version under "A\/x"$/,
  );
  const noList = { version: 3, libraries: {}, project: { frameworks: { 'net8.0': { downloadDependencies: {} } } } };
  fails(t, 'project.assets.json', JSON.stringify(noList), /"downloadDependencies": expected a list/);
  fails(
    t,
    'project.assets.json',
    '{"version": 3,\n"libraries": {"A": {"type":"package"}}}',
    /:2: "" is not a package id/,
  );
});

const group = (items: string) => `<Project><ItemGroup>\n${items}</ItemGroup></Project>`;

test('projects and central versions', (t) => {
  const props = `<?xml version="1.0"?>
<Project>
  <PropertyGroup><Json>13.0.3</Json></PropertyGroup>
  <!-- <PackageVersion Include="Not" Version="1" /> -->
  <ItemGroup Condition="'$(X)' == ''">
    <PackageVersion Include="Newtonsoft.Json" Version="$(Json)" />
    <PackageVersion Include="A;B"><Version>[1,2)</Version></PackageVersion>
    <GlobalPackageReference Include="C" Version="1.*" />
    <PackageVersion Include="D" Version="$(Given)" />
    <PackageVersion Include="E" Version="$(Missing)" />
  </ItemGroup>
</Project>`;
  t.deepEqual(list('Directory.Packages.props', props, { Given: '4.0' }), [
    '6 Newtonsoft.Json [13.0.3, )',
    '7 A [1.0.0, 2.0.0)',
    '7 B [1.0.0, 2.0.0)',
    '8 C [1.*, )',
    '9 D [4.0.0, )',
    '10 ?E: $(Missing) has no value; give it with --arg Missing=…',
  ]);
  const project = `<Project Sdk="Microsoft.NET.Sdk">
<PropertyGroup><TargetFrameworks>net8.0;netstandard2.0</TargetFrameworks></PropertyGroup>
<ItemGroup>
<PackageReference Include="A" Version="1.0.0" PrivateAssets="all" />
<PackageReference Include="B" />
<PackageReference Include="C" Version="1" VersionOverride="2" />
<PackageReference Remove="R" />
<PackageReference Update="U" Version="3.0.0" />
<PackageDownload Include="D" Version="[1.0.0];[2.0.0]" />
<Compile Include="x.cs" />
</ItemGroup></Project>`;
  t.deepEqual(list('App.csproj', project), [
    '4 A [1.0.0, ) net8.0 netstandard2.0',
    '5 B central',
    '6 C [2.0.0, ) net8.0 netstandard2.0',
    '8 U [3.0.0, ) net8.0 netstandard2.0',
    '9 D@1.0.0',
    '9 D@2.0.0',
  ]);
  t.deepEqual(
    list(
      'b.csproj',
      `<Project>
<propertyGroup><targetFramework> net9.0 </targetFramework><V>1.$(Minor)</V><Minor>2</Minor><Empty></Empty></propertyGroup>
<itemGroup><packageReference include=" A ; ;B " version=" $( v ).3 " /></itemGroup>
<ItemGroup><PackageReference><Include>C</Include><Version>$(Empty)</Version></PackageReference></ItemGroup>
<ItemGroup><PackageReference Include="$(Name)" Version="1.0" /></ItemGroup>
<ItemGroup><PackageVersion Include="NoVersion" /><PackageReference Version="1.0" /></ItemGroup>
<ItemGroup><PackageReference Include="E" Version="$(Loop)" /><Reference Include="F" Version="1.0">4.0</Reference></ItemGroup>
<PropertyGroup><Loop>x$(Loop)</Loop></PropertyGroup>
<ItemGroup><PackageDownload Include="D" Version=" [ 1.0 ] " /></ItemGroup>
<ItemGroup><PackageReference Include="G" Version="$(Reference)" /></ItemGroup></Project>`,
    ),
    [
      '3 A [1.2.3, ) net9.0',
      '3 B [1.2.3, ) net9.0',
      '4 ?C: $(Empty) has no value; give it with --arg Empty=…',
      '5 ?$(Name): $(Name) has no value; give it with --arg Name=…',
      '7 ?E: $(Loop) has no value; give it with --arg Loop=…',
      '9 D@1.0.0',
      '10 ?G: $(Reference) has no value; give it with --arg Reference=…',
    ],
  );
  const [unclear] = read('d.csproj', group('<PackageReference Include="A" Version="$(V)" />'));
  t.is(unclear!.kind, 'unclear');
  for (const [items, message] of [
    ['<PackageReference Include="a b" Version="1.0" />', /:2: "a b" is not a package id$/],
    ['<PackageDownload Include="D" Version="1.0" />', /:2: "1\.0" is not an exact version such as \[1\.2\.3\]$/],
    ['<PackageDownload Include="D" Version="[1.0,2.0]" />', /:2: "\[1\.0,2\.0\]" is not an exact version/],
    ['<PackageDownload Include="D" Version="x[1.0]" />', /:2: "x\[1\.0\]" is not an exact version/],
    ['<PackageDownload Include="D" Version="[1.0]x" />', /:2: "\[1\.0\]x" is not an exact version/],
  ] as const)
    fails(t, 'a.csproj', group(items), message);
  t.deepEqual(
    list(
      'c.csproj',
      `<Project><PropertyGroup><TargetFramework>$(No)</TargetFramework></PropertyGroup>
${group('<PackageReference Include="A" Version="1"/>').slice('<Project>'.length)}`,
    ),
    ['3 A [1.0.0, )'],
    'a framework without a value does not select dependencies',
  );
  fails(t, 'a.csproj', '<Project>\n<ItemGroup>\n</Project>', /^a\.csproj:\d: not XML/);
  fails(t, 'a.csproj', '\n\n<Project>\n<ItemGroup>\n</Project>', /^a\.csproj:5: not XML/);
  fails(t, 'a.csproj', '<Project>\n<!ENTITY x>\n</Project>', /^a\.csproj:2: has a document type declaration/);
  t.deepEqual(list('a.csproj', '\uFEFF<Project/>'), []);
  fails(t, 'a.csproj', '', /^a\.csproj:1: /);
  fails(t, 'a.csproj', '<Other/>', /expected a <Project>/);
  fails(t, 'a.csproj', '<Project>\n<!DOCTYPE x>\n</Project>', /^a\.csproj:2: has a document type declaration/);
  const bad = '<Project><ItemGroup>\n<PackageReference Include="A" Version="one"/></ItemGroup></Project>';
  fails(t, 'a.csproj', bad, /^a\.csproj:2: "one" is not a version of A/);
});

const near = (folder: string, name: string) =>
  ['packages.lock.json', `packages.${name}.lock.json`, 'packages.config'].map((each) => `${folder}${each}`);
const central = (folder: string) =>
  ['Directory.Packages.props', 'global.json', '.config/dotnet-tools.json', 'dotnet-tools.json'].map(
    (each) => `${folder}${each}`,
  );

const many = (count: number) =>
  `<Solution>${Array.from({ length: count }, (_, at) => `<Project Path="P${at}.csproj"/>`).join('')}</Solution>`;

const solution = (file: string, text: string) => inputs.solutionOf(file)!.read({ file, text, values: new Map() });

test('solutions name their projects, and the files beside and above these', (t) => {
  const type = '{FAE04EC0-301F-11D3-BF4B-00C04F79EFBC}';
  const text = `Microsoft Visual Studio Solution File, Format Version 12.00
  Project("${type}")  =  "My App",  "src\\My.App\\My.App.csproj", "{1}"\r
Project("${type}")="One","One.FSPROJ","{2}"
Project("${type}") = "Again", "src\\.\\My.App\\My.App.csproj", "{1}"
Project("") = "", "Other.vbproj2"
Project("${type}") = "Folder", "src", "{3}"
x Project("${type}") = "No", "No.csproj", "{4}"
Project("${type}") = "${'n'.repeat(5000)}", "Long.csproj", "{5}"
`;
  const expected = {
    named: ['src/My.App/My.App.csproj', 'One.FSPROJ'],
    near: [
      ...near('src/My.App/', 'My.App'),
      ...central(''),
      ...central('src/'),
      ...central('src/My.App/'),
      ...near('', 'One'),
    ],
  };
  t.deepEqual(solution('All.sln', text), expected);
  const projects = '<Folder><Project Path="src/My.App/My.App.csproj"/></Folder><Project Path="One.FSPROJ"/><Project/>';
  t.deepEqual(solution('All.SLNX', `<Solution>${projects}</Solution>`), expected);
  const deep = `${'d/'.repeat(40)}A.csproj`;
  const { near: found } = solution('All.slnx', `<Solution><Project Path="${deep}"/></Solution>`);
  t.deepEqual([found.length, found.at(-1)], [3 + 33 * 4, `${'d/'.repeat(32)}dotnet-tools.json`]);
  t.is(solution('All.slnx', many(2000)).named.length, 2000);
  for (const [file, wrong, message] of [
    ['All.slnx', many(2001), /^All\.slnx: the solution has more than 2000 projects$/],
    ['All.slnx', '<Project/>', /^All\.slnx:1: expected a <Solution>$/],
    ['All.slnx', '<Solution/>', /^All\.slnx: the solution has no project$/],
    ['All.sln', 'Project("x") = "src", "src", "{1}"', /^All\.sln: the solution has no project$/],
  ] as const)
    t.throws(() => solution(file, wrong), { name: 'Invalid', message });
});

/** A service that takes its image through as many merge keys. */
const chain = (levels: number): string => {
  const links = Array.from({ length: levels }, (_, n) => `x${n + 1}: &a${n + 1} { <<: *a${n} }\n`);
  return `x0: &a0 { image: a }\n${links.join('')}services: { s: *a${levels} }\n`;
};
const withPlatform = (platform: string) => `services:\n  a:\n    image: x\n    platform: ${platform}\n`;

test('compose files', (t) => {
  const text = `x-base: &base
  image: ghcr.io/org/base:1
services:
  db:
    image: mysql:8.4
    platform: linux/amd64
  web:
    <<: *base
  built:
    build: .
    image: mine
  cache:
    image: "redis:\${TAG:-7}"
  other:
    image: app:\${VERSION}
  empty: {}
`;
  t.deepEqual(list('compose.yaml', text), [
    '5 - mysql 8.4 linux/amd64',
    '7 ghcr.io org/base 1',
    '13 - redis 7',
    '15 ?app:${VERSION}: VERSION has no value; give it with --arg VERSION=…',
  ]);
  t.deepEqual(list('compose.yaml', text, { VERSION: '2', TAG: '6' }).slice(2), ['13 - redis 6', '15 - app 2']);
  t.deepEqual(list('compose.yaml', ''), []);
  t.deepEqual(list('compose.yaml', '---\n---\nservices: { a: { image: b:1 } }\n'), ['3 - b 1']);
  t.deepEqual(list('compose.yaml', '# nothing\n---\nname: x\n---\nservices: { 1: { image: " a:1 " } }\n'), ['5 - a 1']);
  const merged = `x-image: &image b:2
x-one: &one { platform: linux/arm64 }
x-two: &two { platform: linux/amd64, image: c:3 }
services:
  alias: { image: *image }
  own:
    <<: [*one, *two]
    image: d:4
  all: { <<: [*one, *two] }
  built: { <<: *two, build: }
  variable: { image: e, platform: "$P" }
`;
  t.deepEqual(list('compose.yaml', merged), [
    '5 - b 2',
    '8 - d 4 linux/arm64',
    '9 - c 3 linux/arm64',
    '11 ?e: P has no value; give it with --arg P=…',
  ]);
  t.deepEqual(list('compose.yaml', merged, { P: 'linux/s390x' }).at(-1), '11 - e latest linux/s390x');
  t.is(list('compose.yaml', chain(8)).length, 1);
  t.is(list('compose.yaml', chain(9)).length, 0, 'merge keys are followed to a depth');
  fails(t, 'compose.yaml', 'a text\n', /^compose\.yaml:1: expected keys/);
  const far = `${'\n'.repeat(20)}services: { a: { image: "abcdefghi", b: "c" d } }\n`;
  fails(t, 'compose.yaml', far, /^compose\.yaml:21: not YAML: Unexpected scalar at node end$/);
  t.deepEqual(list('compose.yaml', 'x: 1\nx: 2\nservices: { a: { image: b:1 } }\n'), ['3 - b 1'], 'a key may repeat');
  fails(t, 'compose.yaml', '- a\n', /^compose\.yaml:1: expected keys such as "services"$/);
  fails(t, 'compose.yaml', 'a: 1\nservices:\n', /^compose\.yaml:2: "services" must be a mapping/);
  fails(
    t,
    'compose.yaml',
    'services:\n  a:\n    image: 5\n',
    /^compose\.yaml:3: the image of the service "a" must be text/,
  );
  fails(t, 'compose.yaml', withPlatform('linux'), /^compose\.yaml:3: "linux" is not a platform such as linux\/amd64/);
  fails(t, 'compose.yaml', withPlatform('[a]'), /^compose\.yaml:3: the platform of the service "a" must be text/);
  fails(
    t,
    'compose.yaml',
    'a: {{ b }\n',
    /^compose\.yaml:\d: not YAML: (?!.* at line).*\(render the template first\)$/,
  );
  fails(
    t,
    'compose.yaml',
    'services:\n  a:\n   image: x\n  b: "\n',
    /^compose\.yaml:[45]: not YAML: (?!.*(?:template| at line)).*\w/,
  );
  fails(t, 'compose.yaml', 'services:\n  - a\n', /^compose\.yaml:2: "services" must be a mapping/);
  fails(t, 'compose.yaml', 'services:\n  a: x\n', /^compose\.yaml:2: the service "a" must be a mapping/);
  fails(t, 'compose.yaml', 'services:\n  a:\n    image: [x]\n', /^compose\.yaml:3: the image of the service "a"/);
  fails(t, 'compose.yaml', 'services:\n  a:\n    image: Not an image\n', /^compose\.yaml:3: "Not an image" is not/);
});

test('Kubernetes manifests', (t) => {
  const text = `apiVersion: v1
kind: Pod
spec:
  initContainers:
    - image: busybox:1
  containers:
    - name: a
      image: registry.k8s.io/pause:3.9
  volumes:
    - name: v
      image: { reference: quay.io/org/data:1 }
---
apiVersion: batch/v1
kind: CronJob
spec: { jobTemplate: { spec: { template: { spec: { containers: [{ image: cron:2 }] } } } } }
---
---
apiVersion: v1
kind: List
items:
  - kind: Deployment
    spec:
      template:
        spec:
          containers:
            - image: web@${digest}
          ephemeralContainers:
            - image: debug
---
kind: ConfigMap
data:
  image: not/this
`;
  t.deepEqual(list('all.yaml', text), [
    '5 - busybox 1',
    '8 registry.k8s.io pause 3.9',
    '11 quay.io org/data 1',
    '15 - cron 2',
    `26 - web ${digest}`,
    '28 - debug latest',
  ]);
  fails(
    t,
    'a.yaml',
    'kind: Pod\nspec:\n  containers: [{ image: {{ .Values.image }} }]\n',
    /^a\.yaml:3: .*render the template first/,
  );
  const alias = `kind: Pod
x: &containers
  - image: a:1
  - &other { image: "" }
spec:
  containers: *containers
  initContainers: [{ <<: *other, image: " b:2 " }, text, { name: no-image }]
  ephemeralContainers: none
  volumes: [{ image: {} }, { image: c }, { emptyDir: {} }]
`;
  t.deepEqual(list('a.yaml', alias), ['7 - b 2', '3 - a 1']);
  fails(t, 'a.yaml', 'kind: Pod\ncontainers:\n  - image: [x]\n', /^a\.yaml:3: "image" must be text$/);
  fails(t, 'a.yaml', 'kind: Pod\ncontainers:\n  - image: 5\n', /^a\.yaml:3: "image" must be text$/);
  for (const text of ['', '# nothing\n', '---\n---\n']) t.deepEqual(list('a.yaml', text), [], text);
  for (const text of ['- a\n', 'a text\n']) fails(t, 'a.yaml', text, /^a\.yaml:1: expected a resource/);
  fails(t, 'a.yaml', 'kind: Pod\nspec:\n  containers:\n    - image: a b\n', /^a\.yaml:4: "a b" is not an image/);
});

test('Dockerfiles', (t) => {
  const text = `# syntax=docker/dockerfile:1.7
# a comment
ARG TAG=3.20
ARG BASE="node:\${TAG}"
ARG OPEN
FROM --platform=$BUILDPLATFORM golang:1.22 AS build
RUN <<EOF
FROM not:this
EOF
RUN --mount=type=bind,from=tools:1,target=/t make \\
  # a comment between
  all
FROM --platform=linux/arm64 $BASE
COPY --from=build /a /b
COPY --chown=1 --from=ghcr.io/org/files:2 /a /b
COPY --from=0 /c /d
FROM build
FROM scratch
FROM x:\${OPEN}
`;
  t.deepEqual(list('Dockerfile', text), [
    '1 - docker/dockerfile 1.7',
    '6 - golang 1.22',
    '10 - tools 1',
    '13 - node 3.20 linux/arm64',
    '15 ghcr.io org/files 2',
    '19 ?x:${OPEN}: OPEN has no value; give it with --arg OPEN=…',
  ]);
  t.true(list('Dockerfile', text, { TAG: '22', OPEN: '9' }).includes('19 - x 9'));
  t.deepEqual(list('Dockerfile', '# escape=`\r\nfrom a:1 `\r\n as x\r\n'), ['2 - a 1']);
  t.deepEqual(list('Dockerfile', 'FROM a:1\nCOPY --from= /a /b\nCOPY --from="" /a /b\n'), ['1 - a 1']);
  const stages = `#syntax = docker/dockerfile:1
# escape=\`
# syntax=docker/dockerfile:2 \t
ARG V=1 W="2" X='3.1' Y
  from "a:$V" as Build
ARG V
ARG Z=4
ARG Q=$Z
COPY --from=b:$V / /
COPY --from=c:$Q / /
COPY --from=d:$W / /
FROM build
COPY --from=BUILD / /
COPY --from=1 / /
COPY --from=2 / /
COPY --from=0x0 / /
COPY --from=e:$V / /
COPY / --from=not:1 /
ADD --from=not:2 / /
COPY --mount=from=not:3 / /
RUN --from=not:4 make --mount=from=not:5
RUN --network=none --security=x,from=not:6 --mount=target=/t  --mount=type=bind,from='f:1',target=/t make
onbuild  copy   --from=g:1 / /
ONBUILD ONBUILD COPY --from=not:6 / /
FROM h:$Z
FROM --platform="linux/arm64" i:$X\\
`;
  t.deepEqual(list('Dockerfile', `\uFEFF${stages.replace(/\\\n$/, '')}`), [
    '3 - docker/dockerfile 2',
    '5 - a 1',
    '9 - b 1',
    '10 - c 4',
    '11 ?d:$W: W has no value; give it with --arg W=…',
    '15 - 2 latest',
    '16 - 0x0 latest',
    '17 ?e:$V: V has no value; give it with --arg V=…',
    '22 - f 1',
    '23 - g 1',
    '25 ?h:$Z: Z has no value; give it with --arg Z=…',
    '26 - i 3.1 linux/arm64',
  ]);
  const documents = `FROM a:1
RUN cat <<-ONE 3<<"TWO" > /x
FROM not:1
\tONE
FROM not:2
TWO
COPY <<'THREE' /y
FROM not:3
 THREE
THREE
RUN <<THREE
FROM not:4
THREE
RUN <<NEVER
FROM b:2
CMD <<FOUR
FROM c:3
FOUR
`;
  fails(t, 'Dockerfile', documents, /^Dockerfile:18: "FOUR" is not an instruction/);
  t.deepEqual(list('Dockerfile', documents.replace('\nFOUR\n', ' \\\n\n# x\n  AS y \\')), [
    '1 - a 1',
    '15 - b 2',
    '17 - c 3',
  ]);
  fails(
    t,
    'Dockerfile',
    '# a comment\n# syntax=docker/dockerfile:1\nARG A\n\nARG B\nARG C\n',
    /^Dockerfile:6: FROM is missing/,
  );
  t.deepEqual(list('Dockerfile', '# no=directive here\n# syntax=docker/dockerfile:1\nFROM a:1\n'), ['3 - a 1']);
  t.deepEqual(list('Dockerfile', 'ARG C=1 #syntax=not:1\nFROM  a:1 \\'), ['2 - a 1']);
  t.deepEqual(list('Dockerfile', 'FROM a:1\nRUN copy --from=not:1 / /\nRUN --mount=from=b:2,target=/t make\n'), [
    '1 - a 1',
    '3 - b 2',
  ]);
  // The names of the documents are those of instructions, because only an instruction can follow where there is no document.
  for (const word of ['a<<CMD', '<<CMD<x', '<<<CMD'])
    t.deepEqual(list('Dockerfile', `FROM a:1\nRUN cat ${word}\nFROM b:2\nCMD\n`), ['1 - a 1', '3 - b 2'], word);
  for (const instruction of ['ADD <<CMD /x', 'ONBUILD RUN <<CMD', 'COPY <<CMD /x'])
    t.deepEqual(list('Dockerfile', `FROM a:1\n${instruction}\nFROM not:2\nCMD\n`), ['1 - a 1'], instruction);
  const twelve = `${'FROM a:1\n'.repeat(12)}COPY --from=10 / /\nCOPY --from=12 / /\n`;
  t.deepEqual(list('Dockerfile', twelve).slice(12), ['14 - 12 latest'], 'stages have numbers');
  const twice = 'ARG V=1\nARG V\nFROM a:$V\nARG W=2\nARG W\nCOPY --from=b:$W / /\n';
  t.deepEqual(list('Dockerfile', twice), ['3 - a 1', '6 - b 2'], 'an argument without a default keeps its value');
  fails(t, 'Dockerfile', 'FROM --platform=linux/amd64\n', /^Dockerfile:1: FROM has no image/);
  for (const image of ['x"b"', '"b"x'])
    fails(t, 'Dockerfile', `FROM ${image}\n`, /^Dockerfile:1: .* is not an image name/);
  for (const line of ['-RUN a', 'RUN: a'])
    fails(t, 'Dockerfile', `FROM a\n${line}\n`, /^Dockerfile:2: "-?RUN:? a" is not an/);
  fails(t, 'Dockerfile', 'FROM a\nFROM --x=1 b\n', /^Dockerfile:2: FROM has no flag "--x=1"/);
  fails(t, 'Dockerfile', 'FROM a AS\n', /^Dockerfile:1: expected FROM image/);
  fails(t, 'Dockerfile', 'FROM a AS b c\n', /^Dockerfile:1: expected FROM image/);
  fails(t, 'Dockerfile', 'FROM Not\n', /^Dockerfile:1: "Not" is not an image name/);
  fails(t, 'Dockerfile', 'FROM --platform=linux a\n', /^Dockerfile:1: "linux" is not a platform such as linux\/amd64/);
  fails(t, 'Dockerfile', 'FROM\n', /^Dockerfile:1: FROM has no image/);
  fails(t, 'Dockerfile', 'FROM a b c\n', /^Dockerfile:1: expected FROM image/);
  fails(t, 'Dockerfile', '# x\nRUN a\n', /^Dockerfile:2: RUN is before the first FROM/);
  fails(t, 'Dockerfile', 'FROM a\nhello there\n', /^Dockerfile:2: "hello there" is not an instruction/);
  fails(t, 'Dockerfile', '', /^Dockerfile:1: FROM is missing/);
});

test('a variable with a default from another variable keeps the value from the user', (t) => {
  const text = 'ARG A=1\nARG B=$A\nFROM x:$B\n';
  t.deepEqual(list('Dockerfile', text, { A: '2' }), ['3 - x 2']);
});

/** Pieces of text that the readers understand, in any order. */
const pieces = constantFrom(
  '{',
  '}',
  '[',
  ']',
  ':',
  ',',
  '"',
  "'",
  '\n',
  '  ',
  '- ',
  '&a ',
  '*a',
  '<<: ',
  '<',
  '/>',
  '>',
  '</',
  '=',
  '$',
  '${',
  '$(',
  ')',
  '#',
  '@',
  '`',
  '\\\n',
  '|',
  '---\n',
  '<<EOF',
  '\0',
  '\uFEFF',
  '\uD800',
  'services',
  'image',
  'containers',
  'kind',
  'version',
  'dependencies',
  'libraries',
  'resolved',
  'FROM ',
  'ARG ',
  'COPY --from=',
  'RUN ',
  'AS',
  'Project',
  'ItemGroup',
  'PackageReference',
  'Include',
  'Version',
  '1.0',
  'alpine',
  '!!binary ',
  '%YAML 1.2\n',
  '? ',
);
const texts = oneof(
  array(pieces, { maxLength: 60 }).map((each) => each.join('')),
  string({ unit: 'binary', maxLength: 200 }),
  json().map((any) => `{"version": 1, "dependencies": ${any}, "libraries": ${any}, "services": ${any}}`),
  json().map((any) => `kind: Pod\nservices: ${any}\ncontainers: ${any}\n`),
);

for (const kind of inputs.kinds) {
  test(`${kind}: any input is read or refused with its location`, (t) => {
    assert(
      property(texts, (text) => {
        try {
          for (const { location } of read('file', text, { A: 'a' }, kind)) {
            if (location.line < 1 || location.line > text.split('\n').length)
              throw new Error(`no line ${location.line}`);
          }
        } catch (error) {
          if (!isDomainError(error, 'Invalid') || !/^file:\d+: /.test(error.message)) throw error;
        }
      }),
      { numRuns: 400 },
    );
    t.pass();
  });
}

test('deep nesting and self references are refused or read without harm', (t) => {
  const deep = `services: ${'['.repeat(20_000)}`;
  fails(t, 'compose.yaml', deep, /^compose\.yaml:\d+: /);
  const bomb = `a: &a [x]\n${Array.from('bcdefghij')
    .map((each, i) => `${each}: &${each} [${`*${'abcdefghij'[i]},`.repeat(10)}]\n`)
    .join('')}kind: Pod\ncontainers: *j\n`;
  t.deepEqual(list('bomb.yaml', bomb), []);
  t.deepEqual(list('self.yaml', 'kind: Pod\ncontainers: &a\n  - <<: *a\n'), []);
  fails(t, 'a.csproj', `<Project>${'<a>'.repeat(5000)}${'</a>'.repeat(5000)}</Project>`, /^a\.csproj:1: /);
});
