use super::*;

/// Cell (Å, degrees) of the tests. Ten atoms lie along x, 1 Å apart, so that they fill its 10 Å.
const CELL: [f32; 6] = [10.0, 20.0, 20.0, 90.0, 90.0, 90.0];

fn selected(nodes: Vec<Node>, base: usize, selection: usize) -> Vec<u32> {
    let frame: Vec<f32> = (0..10).flat_map(|k| [k as f32, 1.0, 1.0]).collect();
    let group = Group {
        base,
        n_base: None,
        selections: vec![selection],
    };
    let task = Selected::new(nodes, group, None, [10, 10], true).expect("a tree");
    let frames = Frames::new(&frame, 10, &CELL).expect("a frame");
    let (mut counts, mut atoms) = (Vec::new(), Vec::new());
    let refused = task.find(&frames, &mut counts, &mut atoms);
    assert_eq!(refused.expect("a block"), None);
    assert_eq!(counts, [atoms.len() as i64]);
    atoms
}

fn near(of: usize, inner: Option<f64>, outer: f64, periodic: bool) -> Node {
    Node::Near {
        of,
        inner,
        outer,
        periodic,
    }
}

#[test]
fn atoms_near_others_are_found_across_the_cell() {
    let fixed = Node::Fixed(vec![0, 1]);
    let around = |periodic| vec![Node::All, fixed.clone(), near(1, None, 2.1, periodic)];
    assert_eq!(selected(around(true), 0, 2), [2, 3, 8, 9]);
    assert_eq!(selected(around(false), 0, 2), [2, 3]);
    let layer = vec![Node::All, fixed, near(1, Some(1.1), 2.1, true)];
    assert_eq!(selected(layer, 0, 2), [3, 8]);
}

#[test]
fn selections_see_the_group_that_they_are_applied_to() {
    let tree = |last: Node| {
        vec![
            Node::Fixed(vec![2, 4, 6, 8]),
            Node::Fixed(vec![3]),
            near(1, None, 3.1, true),
            last,
        ]
    };
    assert_eq!(selected(tree(Node::Not(2)), 0, 2), [2, 4, 6]);
    assert_eq!(selected(tree(Node::Not(2)), 0, 3), [8]);
    assert_eq!(selected(tree(Node::Global(2)), 0, 3), [0, 1, 2, 4, 5, 6]);
    assert_eq!(selected(tree(Node::And([0, 2])), 0, 3), [2, 4, 6]);
    assert_eq!(selected(tree(Node::Or([1, 2])), 0, 3), [2, 3, 4, 6]);
    // The base group may itself be a selection of near atoms.
    assert_eq!(selected(tree(Node::All), 2, 3), [0, 1, 2, 4, 5, 6]);
}

#[test]
fn limits_of_spheres_and_cylinders() {
    let sphere = |inner| Node::Sphere {
        center: Center::At([4.0, 1.0, 1.0]),
        inner,
        outer: 2.1,
        periodic: true,
    };
    assert_eq!(
        selected(vec![Node::All, sphere(None)], 0, 1),
        [2, 3, 4, 5, 6]
    );
    assert_eq!(selected(vec![Node::All, sphere(Some(1.1))], 0, 1), [2, 6]);
    let cylinder = |z| Node::Cylinder {
        of: 1,
        inner: None,
        outer: 3.9,
        radius: 2.0,
        z,
        periodic: true,
    };
    let tree = |z| vec![Node::All, Node::Fixed(vec![0]), cylinder(z)];
    assert_eq!(selected(tree([-1.0, 1.0]), 0, 2), [0, 1, 9]);
    assert_eq!(selected(tree([0.0, 1.0]), 0, 2), [0_u32; 0]);
}

#[test]
fn atoms_that_have_something_in_common() {
    let labels = vec![0, 0, 1, 1, 2, 2, 3, 3, NO_LABEL, NO_LABEL];
    let tree = |of: Vec<u32>| {
        let labels = labels.clone();
        vec![Node::All, Node::Fixed(of), Node::Same { of: 1, labels }]
    };
    assert_eq!(selected(tree(vec![1, 4]), 0, 2), [0, 1, 4, 5]);
    assert_eq!(selected(tree(vec![9]), 0, 2), [0_u32; 0]);
    let same = Node::SameCoordinate { of: 1, axis: 0 };
    let tree = vec![Node::All, Node::Fixed(vec![7]), same];
    assert_eq!(selected(tree, 0, 2), [7]);
}

#[test]
fn trees_that_lack_something_are_refused() {
    let group = |selection| Group {
        base: 0,
        n_base: None,
        selections: vec![selection],
    };
    for (nodes, group) in [
        (vec![Node::All, Node::Not(1)], group(1)),
        (vec![Node::Fixed(vec![10])], group(0)),
        (vec![Node::All], group(1)),
    ] {
        assert!(Selected::new(nodes, group, None, [10, 10], true).is_err());
    }
}
