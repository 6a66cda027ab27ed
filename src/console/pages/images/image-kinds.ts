import { exact, lines, short } from '../../framework/format.ts';
import { html, type Html } from '../../framework/html.ts';

// What media types and artifact types mean to people, and by which tool each is pulled.

const kinds: readonly (readonly [pattern: RegExp, text: string])[] = [
  [/^application\/vnd\.dev\.sigstore\.bundle/, 'Signature (Sigstore)'],
  [/^application\/vnd\.dev\.cosign\./, 'Signature (cosign)'],
  [/^application\/vnd\.cncf\.notary\.signature$/, 'Signature (Notary)'],
  [/spdx/, 'SBOM (SPDX)'],
  [/cyclonedx/, 'SBOM (CycloneDX)'],
  [/in-toto/, 'Attestation (in-toto)'],
  [/^application\/vnd\.cncf\.helm\./, 'Helm chart'],
  [/^application\/vnd\.(?:oci\.image\.index|docker\.distribution\.manifest\.list)\./, 'Index of platforms'],
  [
    /^application\/vnd\.(?:oci\.image\.(?:manifest|config)|docker\.distribution\.manifest|docker\.container\.image)\./,
    'Image',
  ],
];

/** The kind of an artifact in words; undefined for one that is not known here. */
function artifactKind(type: string): string | undefined {
  return kinds.find(([pattern]) => pattern.test(type))?.[1];
}

/** A type in words, with the type itself on hover. */
export function kindHtml(...types: readonly string[]): Html {
  const known = types.find((each) => artifactKind(each) !== undefined) ?? types.at(-1)!;
  return exact(artifactKind(known) ?? short(known, 200), short(known, 200));
}

/** What decides which tool pulls a manifest. */
interface Pulled {
  artifact_type: string | null;
  media_type: string;
  config: { media_type: string } | null;
}

/** The line that pulls a tag (`:tag`) or a digest (`@digest`), with the tool for its kind. */
export function pullLines(
  registry: string,
  name: string,
  reference: string,
  { artifact_type: type, config }: Pulled,
): Html {
  const { host, protocol } = new URL(registry);
  const configType = config?.media_type ?? '';
  const label = 'the line that pulls it';
  if (configType.startsWith('application/vnd.cncf.helm.')) {
    const version = reference.startsWith(':') ? ` --version ${reference.slice(1)}` : '';
    return lines(`helm pull oci://${host}/${name}${version}`, label);
  }
  const isImage =
    config === null || /^application\/vnd\.(?:oci\.image\.config|docker\.container\.image)\./.test(configType);
  const target = `${host}/${name}${reference}`;
  if (!isImage || type !== null) return lines(`oras pull ${target}`, label);
  const insecure = protocol === 'http:' ? '--tls-verify=false ' : '';
  return html`${lines(`docker pull ${target}`, label)}
    <details>
      <summary>With podman</summary>
      ${lines(`podman pull ${insecure}${target}`, 'the line for podman')}
    </details>`;
}
