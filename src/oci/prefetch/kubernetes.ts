import { isMap, isScalar, isSeq, visit, type Document, type YAMLMap } from 'yaml';
import { parseImageName } from './image-name.ts';
import { malformed, firstLine, type Input } from '../../prefetch/item.ts';
import type { OciItem } from './image-item.ts';
import { YamlInput } from './yaml-input.ts';

const containerLists = ['initContainers', 'containers', 'ephemeralContainers'];

/**
 * The images of all pod specifications in Kubernetes manifests, at any depth: pods, deployments, jobs, cron jobs, lists,
 * and custom resources that contain one.
 */
export function readKubernetes({ file, text }: Input): OciItem[] {
  const yaml = new YamlInput(file, text);
  const items: OciItem[] = [];
  const notText = `"image" must be text${text.includes('{{') ? '; render the template first' : ''}`;
  const add = (node: unknown, fallback: unknown) => {
    const line = yaml.lineOf(node ?? fallback);
    if (!isScalar(node) || typeof node.value !== 'string') throw malformed(file, line, notText);
    const name = node.value.trim();
    if (name === '') return;
    const image = parseImageName(name);
    if (!image) throw malformed(file, line, `${firstLine(name)} is not an image name`);
    items.push({ kind: 'image', image, location: { file, line } });
  };
  for (const document of yaml.documents) {
    const root: unknown = document.contents;
    if (isScalar(root) && root.value === null) continue;
    if (!isMap(root)) throw malformed(file, yaml.lineOf(root), 'expected a resource with "apiVersion" and "kind"');
    visit(document, {
      Map: (_key, map) => {
        for (const list of containerLists) {
          for (const container of mapsOf(yaml, document, map, list)) {
            const image = yaml.field(document, container, 'image');
            if (image !== undefined) add(image, container);
          }
        }
        // An image volume.
        for (const volume of mapsOf(yaml, document, map, 'volumes')) {
          const source = yaml.field(document, volume, 'image');
          const reference = isMap(source) ? yaml.field(document, source, 'reference') : undefined;
          if (reference !== undefined) add(reference, volume);
        }
      },
    });
  }
  return items;
}

/** The mappings in the list under `key`; none if it is not a list. */
function mapsOf(yaml: YamlInput, document: Document, map: YAMLMap, key: string): YAMLMap[] {
  const list = map.has(key) ? yaml.field(document, map, key) : undefined;
  return isSeq(list) ? list.items.map((each) => yaml.resolve(document, each)).filter((each) => isMap(each)) : [];
}

/** Whether a YAML file is a Compose file by its content: it has `services`, and no `kind` of a resource. */
export function looksLikeCompose({ text }: Input): boolean {
  return /^services\s*:/m.test(text) && !/^kind\s*:/m.test(text);
}
